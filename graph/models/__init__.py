"""The models: any OpenAI-compatible endpoint, and three that work offline. They see what any chat model sees."""

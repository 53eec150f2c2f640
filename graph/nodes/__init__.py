"""The five nodes. Each does one thing: think (plan, act), act (tool_execute), wait (approval), judge (review)."""

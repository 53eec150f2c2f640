"""What the agent may do: tools, the sandbox they run in, the workspace they work on."""

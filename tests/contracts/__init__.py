"""What every store of a kind promises; unit tests hold the memory ones to it, integration tests the real ones."""

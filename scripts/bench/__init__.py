"""The figures: what a durable step costs, what it stores, what is repaired, what outlives a kill. One file a figure."""

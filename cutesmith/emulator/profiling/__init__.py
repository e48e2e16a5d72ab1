"""What a launch cost by Python line: counted accesses and instructions, and what to change."""

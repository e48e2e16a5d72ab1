"""What the model reads: prompts, verdicts and profiles in words, lessons between lines."""

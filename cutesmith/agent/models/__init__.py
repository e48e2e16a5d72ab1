"""Who answers: Claude through the SDK, a script, a recording; and what answers cost."""

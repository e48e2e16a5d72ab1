"""The transform pattern: lines through butterflies in registers, and through shared memory between them."""

"""Index arithmetic that is too narrow, looked for at full size: a few blocks are run for their addresses alone.

Global memory is neither read nor written, so tensors of any size cost nothing (`elision`). Every integer that an
address is made of is computed a second time with 64 bits (`widened`): where the two addresses differ, and the wider one
is the one that lies in a tensor, an index has wrapped (`search`).
"""

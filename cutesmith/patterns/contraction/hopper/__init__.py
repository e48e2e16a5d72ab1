"""The form of a product for sm_90a: TMA, wgmma, specialised warps, persistent blocks."""

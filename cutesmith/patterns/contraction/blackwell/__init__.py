"""The form of a product for sm_100a: TMA loads, tcgen05 multiplies, tensor memory holds the sums."""

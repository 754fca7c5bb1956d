/* The first include of a file whose products and sums may be fused where the
** processor can: one rounding less, so only for loops that treat every element
** alike. */
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("fp-contract=fast")
#endif

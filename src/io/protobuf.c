/* Protobuf's wire format, read and written. */
#include "io/io.h"

int tfd__message_broken(const tfd__message *m, const char *why) {
  return tfd__fail(TFD_DATA_LOSS,
                   "%s: not a valid message, %zu bytes before its end: %s",
                   m->what, m->n, why);
}

int tfd__message_number(tfd__message *m, uint64_t *x_p) {
  uint64_t x = 0;
  int shift;

  for (shift = 0; shift < 64; shift += 7) {
    unsigned char byte;

    if (m->n == 0) return tfd__message_broken(m, "a number is cut off");
    byte = *m->p;
    m->p++;
    m->n--;
    x |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) {
      *x_p = x;
      return TFD_OK;
    }
  }
  return tfd__message_broken(m, "a number is too long");
}

int tfd__message_key(tfd__message *m, uint64_t *field_p, int *wire_p) {
  uint64_t key = 0;

  TFD_TRY(tfd__message_number(m, &key));
  *field_p = key >> 3;
  *wire_p = (int)(key & 7);
  if (*field_p == 0) return tfd__message_broken(m, "field number 0");
  return TFD_OK;
}

int tfd__message_bytes(tfd__message *m, int wire, tfd__message *bytes_p) {
  uint64_t n = wire == TFD_WIRE_64 ? 8 : 4;

  if (wire == TFD_WIRE_BYTES) {
    TFD_TRY(tfd__message_number(m, &n));
  } else if (wire != TFD_WIRE_64 && wire != TFD_WIRE_32) {
    return tfd__message_broken(m, "wire type");
  }
  if (n > m->n) {
    return tfd__message_broken(m, "a length goes beyond the end");
  }
  *bytes_p = (tfd__message){m->p, (size_t)n, m->what};
  m->p += n;
  m->n -= (size_t)n;
  return TFD_OK;
}

int tfd__message_skip(tfd__message *m, int wire) {
  uint64_t x = 0;
  tfd__message bytes;

  return wire == TFD_WIRE_NUMBER ? tfd__message_number(m, &x)
                                 : tfd__message_bytes(m, wire, &bytes);
}

/* --- writing -------------------------------------------------------------- */

int tfd__bytes_number(tfd__bytes *b, uint64_t x) {
  unsigned char bytes[10];
  size_t n = 0;

  while (x >= 128) {
    bytes[n++] = (unsigned char)(x | 128);
    x >>= 7;
  }
  bytes[n++] = (unsigned char)x;
  return tfd__bytes_add(b, bytes, n);
}

int tfd__bytes_field(tfd__bytes *b, int field, const tfd__bytes *inner) {
  TFD_TRY(tfd__bytes_number(b, (uint64_t)field << 3 | TFD_WIRE_BYTES));
  TFD_TRY(tfd__bytes_number(b, inner->n));
  return tfd__bytes_add(b, inner->data, inner->n);
}

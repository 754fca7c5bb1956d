#ifndef TFD_BACKEND_CPU_RECURRENT_CPU_H
#define TFD_BACKEND_CPU_RECURRENT_CPU_H
/* Private to the recurrent kernels: operands of one call. */

#include "backend/cpu/onednn/onednn.h"
#include "backend/recurrent.h"

/* Operand numbers of recurrent plans and of the pointer table below. c is
** the LSTM's cell state; GRU has none. */
typedef enum tfd__rnn_operand {
  RNN_X,
  RNN_H0,
  RNN_C0,
  RNN_W,
  RNN_U,
  RNN_BIAS,
  RNN_SEQUENCE,
  RNN_H,
  RNN_C,
  RNN_WORKSPACE,
  RNN_DSEQUENCE,
  RNN_DH,
  RNN_DC,
  RNN_DX,
  RNN_DW,
  RNN_DU,
  RNN_DBIAS,
  RNN_DH0,
  RNN_DC0,
  RNN_OPERANDS
} tfd__rnn_operand;

typedef struct tfd__rnn {
  const char *name;
  tfd__recurrent r;
  int dtype;
  bool training;
  bool backward;
  size_t workspace_bytes; /* behind the header */
  void *at[RNN_OPERANDS]; /* absent states and biases point at zeros */
} tfd__rnn;

/* oneDNN's LSTM or GRU with linear-before-reset, by r.gates. bias has 4 rows
** in both. false: not taken. */
bool tfd__dnnl_recurrent(tfd__rnn *rnn, int *rc_p);

/* Our own loops for float32 and float64; bias of GRU is {2, 3 * units}. */
int tfd__rnn_plain(tfd__rnn *rnn);

#endif

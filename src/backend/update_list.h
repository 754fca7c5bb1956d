#ifndef TFD_BACKEND_UPDATE_LIST_H
#define TFD_BACKEND_UPDATE_LIST_H
/* L2 backend: the optimizers' rules (update_rules.h), for every back end. May
** include nothing. */

/* What rows that have no gradient do when others have one: they see a gradient
** of 0, as in Keras, and what that has no effect on is not touched. */
typedef enum tfd__update_rest {
  TFD_REST_STAYS = 0,
  TFD_REST_SLOTS, /* their slots see it, the variable stays */
  TFD_REST_ALL    /* so does the variable */
} tfd__update_rest;

/* RULE(name, targets: the variable and its slots, rest). */
#define TFD_UPDATE_RULES(RULE)              \
  RULE(sgd, 1, TFD_REST_STAYS)              \
  RULE(momentum, 2, TFD_REST_ALL)           \
  RULE(nesterov, 2, TFD_REST_ALL)           \
  RULE(adam, 3, TFD_REST_ALL)               \
  RULE(amsgrad, 4, TFD_REST_ALL)            \
  RULE(adamax, 3, TFD_REST_ALL)             \
  RULE(nadam, 3, TFD_REST_ALL)              \
  RULE(rmsprop, 2, TFD_REST_SLOTS)          \
  RULE(rmsprop_centered, 3, TFD_REST_SLOTS) \
  RULE(rmsprop_momentum, 3, TFD_REST_ALL)   \
  RULE(rmsprop_both, 4, TFD_REST_ALL)       \
  RULE(adagrad, 2, TFD_REST_STAYS)          \
  RULE(adadelta, 3, TFD_REST_SLOTS)         \
  RULE(ftrl, 3, TFD_REST_ALL)               \
  RULE(average, 1, TFD_REST_ALL)

#endif

/* examples/embed_mirrored.c as a program: what it prints is what gradient
** descent gives in plain C, and it leaves nothing behind. */
#define main example_main
#include "../../examples/embed_mirrored.c"
#undef main

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Loss before the step, in doubles; then the step. */
static double descend(double *w, double *b) {
  double loss = 0;
  double dw = 0;
  double db = 0;
  int i;

  for (i = 0; i < POINTS; i++) {
    double x = (double)i / POINTS;
    double error = *w * x + *b - (2 * x + 1);

    loss += error * error / POINTS;
    dw += 2 * error * x / POINTS;
    db += 2 * error / POINTS;
  }
  *w -= 0.5 * dw;
  *b -= 0.5 * db;
  return loss;
}

/* Everything that it prints. */
static void run_example(char *text, size_t n) {
  FILE *file = tmpfile();
  int terminal = dup(STDOUT_FILENO);
  int status = 0;
  size_t got = 0;

  assert_non_null(file);
  fflush(stdout);
  assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
  status = example_main();
  fflush(stdout);
  assert_true(dup2(terminal, STDOUT_FILENO) >= 0);
  close(terminal);
  rewind(file);
  got = fread(text, 1, n - 1, file);
  text[got] = '\0';
  fclose(file);
  assert_int_equal(0, status);
}

static void it_prints_what_gradient_descent_gives(void **state) {
  char text[1024];
  const char *line = text;
  double w = 0;
  double b = 0;
  double shown_w = 0;
  double shown_b = 0;
  int k;

  (void)state;
  run_example(text, sizeof text);
  for (k = 0; k < STEPS; k++) {
    double loss = descend(&w, &b);
    double shown = -1;
    int step = -1;

    if (k % REPORT != 0) continue;
    assert_int_equal(2, sscanf(line, "step %d loss = %lf", &step, &shown));
    assert_int_equal(k, step);
    /* float32 sums of 15 terms: a few rounding errors of 1.2e-7 of the value;
    ** six digits are shown. */
    assert_true(fabs(shown - loss) <= 1e-6 + 2e-6 * loss);
    line = strchr(line, '\n') + 1;
  }
  assert_int_equal(2, sscanf(line, "w = %lf b = %lf", &shown_w, &shown_b));
  assert_true(fabs(shown_w - w) <= 0.001);
  assert_true(fabs(shown_b - b) <= 0.001);
  assert_true(fabs(w - 2) <= 0.001 && fabs(b - 1) <= 0.001);
}

static void nothing_is_left(void **state) {
  int kind;

  (void)state;
  for (kind = 0; kind < TFD_HANDLE_KINDS; kind++) {
    if (kind == TFD_HANDLE_DEVICE || kind == TFD_HANDLE_CONTEXT) continue;
    assert_int_equal(0, tfd_live_handles((tfd_handle_kind)kind));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_prints_what_gradient_descent_gives),
      cmocka_unit_test(nothing_is_left),
  };

  alarm(300); /* a hang ends the program */
  return cmocka_run_group_tests(tests, NULL, NULL);
}

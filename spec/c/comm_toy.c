/* A provider of the specs' own (spec/support/comm/toy.c) through the whole
** case table, groups of several workers with several ranks each, and what
** failures, deadlines and aborts do to a group. */
#include <unistd.h>

#include "device_support.h"

#include "comm_cases.h"

#include "../support/comm/toy.c"

enum { DEVICES = 6 };

/* One worker's part of a group of equals. */
static tfd__group *join_hub(toy_hub *hub, int worker, int local,
                            double timeout) {
  tfd_device *devices[DEVICES];
  tfd__group *g = NULL;
  tfd__group_config config = {.provider = hub->workers > 1 ? "toy" : NULL,
                              .devices = devices,
                              .local = local,
                              .base = worker * local,
                              .size = hub->workers * local,
                              .timeout = timeout,
                              .network = &hub->network};
  int i;

  for (i = 0; i < local; i++) devices[i] = device(config.base + i);
  assert_int_equal(TFD_OK, tfd__group_new(&config, &g));
  return g;
}

typedef struct worker {
  world w;
  pthread_t thread;
} worker;

static void *run_cases(void *arg) {
  check_world(&((worker *)arg)->w);
  return NULL;
}

static void check_workers(int workers, int local) {
  worker list[DEVICES];
  toy_hub hub;
  int i;

  toy_hub_init(&hub, workers);
  for (i = 0; i < workers; i++) {
    list[i].w = (world){.group = join_hub(&hub, i, local, 300), .small = true};
    assert_string_equal(workers == 1 ? "shared" : "toy",
                        list[i].w.group->provider->name);
  }
  for (i = 1; i < workers; i++) {
    assert_int_equal(
        0, pthread_create(&list[i].thread, NULL, run_cases, &list[i]));
  }
  run_cases(&list[0]);
  for (i = 1; i < workers; i++) pthread_join(list[i].thread, NULL);
  for (i = 0; i < workers; i++) tfd__release(list[i].w.group);
  assert_null(hub.messages);
  toy_hub_end(&hub);
}

static void every_case_among_workers(void **state) {
  (void)state;
  check_workers(1, 2);
  check_workers(2, 1);
  check_workers(3, 1);
  check_workers(2, 2);
  check_workers(3, 2);
}

/* --- registering ---------------------------------------------------------- */

static void tables_that_do_not_do_are_refused(void **state) {
  tfd__provider p = toy_provider;
  tfd_device *devices[2] = {device(0), device(1)};
  tfd__group_config config = {.devices = devices, .local = 2, .size = 2};
  tfd__group *g = NULL;

  (void)state;
  assert_int_equal(TFD_ALREADY_EXISTS, tfd__provider_register(&p));
  p.name = "other";
  p.begin[TFD_COLLECTIVE_BROADCAST] = NULL;
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd__provider_register(&p));
  assert_non_null(strstr(tfd_error_message(), "\"other\" has no broadcast"));
  p = toy_provider;
  p.name = "other";
  p.wait = NULL;
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd__provider_register(&p));
  p.wait = toy_wait;
  p.abi++;
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd__provider_register(&p));

  config.provider = "other";
  assert_int_equal(TFD_NOT_FOUND, tfd__group_new(&config, &g));
  config.provider = "toy";
  assert_int_equal(TFD_UNAVAILABLE, tfd__group_new(&config, &g));
  config.provider = NULL;
  config.size = 4; /* the rest is nowhere */
  assert_int_equal(TFD_UNAVAILABLE, tfd__group_new(&config, &g));
  assert_non_null(strstr(tfd_error_message(), "2 of 4 ranks are in others"));
  config.base = 3;
  assert_int_equal(TFD_VALUE_ERROR, tfd__group_new(&config, &g));
  assert_null(g);
}

/* --- failures ------------------------------------------------------------- */

/* A group whose other worker never says anything. */
typedef struct lonely {
  toy_hub hub;
  world w;
  pieces p;
  tfd__collective c; /* what the other rank would say */
} lonely;

static void lonely_init(lonely *l, double timeout) {
  toy_hub_init(&l->hub, 2);
  l->w.group = join_hub(&l->hub, 0, 1, timeout);
  make_pieces(&l->w, &l->p, TFD_FLOAT32, 10);
  l->c = collective(TFD_COLLECTIVE_BROADCAST, TFD_REDUCE_SUM, &l->p, &l->p);
  l->c.root = 1;
}

static void lonely_end(lonely *l) {
  drop_pieces(&l->w, &l->p);
  tfd__release(l->w.group);
  toy_hub_end(&l->hub);
}

/* Before a collective has begun it is told in the words of one under way. */
static void expect_cause(const tfd__collective *c, const char *cause) {
  char begin[128];

  (void)snprintf(begin, sizeof begin, "%s: the workers cannot go on together: ",
                 tfd__collective_name(c->kind));
  assert_memory_equal(begin, tfd_error_message(), strlen(begin));
  assert_non_null(strstr(tfd_error_message(), cause));
}

static void expect_aborted(tfd__group *g, const tfd__collective *c,
                           const char *cause) {
  tfd__collective own = *c;
  tfd__ticket *t = NULL;

  own.what = "strategy:reduce";
  assert_int_equal(TFD_ABORTED, tfd__group_begin(g, &own, &t));
  expect_cause(c, cause);
  assert_int_equal(TFD_ABORTED, tfd__group_run(g, &own, 0));
  expect_cause(c, cause);
  assert_null(t);
}

static void a_deadline_fails_the_group(void **state) {
  lonely l;
  tfd__ticket *t = NULL;
  bool done = true;

  (void)state;
  lonely_init(&l, 300);
  assert_int_equal(TFD_OK, tfd__group_begin(l.w.group, &l.c, &t));
  assert_int_equal(TFD_OK, tfd__ticket_test(t, &done));
  assert_false(done);
  assert_int_equal(TFD_OK, tfd__group_check(l.w.group, "check"));
  assert_int_equal(TFD_DEADLINE_EXCEEDED,
                   tfd__ticket_wait(t, tfd__deadline_in(0.03)));
  assert_int_equal(TFD_ABORTED, tfd__ticket_wait(t, TFD_FOREVER));
  tfd__ticket_end(t);
  expect_aborted(l.w.group, &l.c, "broadcast: not done at its deadline");
  lonely_end(&l);
}

/* A collective that is made of others, whose second worker never comes. */
static void miss_in_steps(double timeout, tfd__deadline until) {
  lonely l;

  lonely_init(&l, timeout);
  fill_pieces(&l.w, &l.p, TFD_REDUCE_SUM);
  l.c.kind = TFD_COLLECTIVE_ALL_REDUCE;
  assert_int_equal(TFD_DEADLINE_EXCEEDED,
                   tfd__group_run(l.w.group, &l.c, until));
  expect_aborted(l.w.group, &l.c, "deadline");
  lonely_end(&l);
}

static void so_does_the_groups_own_deadline(void **state) {
  (void)state;
  miss_in_steps(0.03, 0);
}

static void steps_have_the_calls_deadline(void **state) {
  (void)state;
  (void)alarm(60); /* without it they would have the group's */
  miss_in_steps(300, tfd__deadline_in(0.03));
  (void)alarm(0);
}

static void *wait_for_ever(void *arg) {
  return (void *)(intptr_t)tfd__ticket_wait(arg, TFD_FOREVER);
}

/* --- tickets that a thread moves on --------------------------------------- */

/* Nobody waits for them: they come to their end all the same. */
static void attended_tickets_get_done(void **state) {
  tfd__deadline until = tfd__deadline_in(60);
  toy_hub hub;
  world w[2];
  pieces p[2];
  tfd__ticket *t[2] = {NULL, NULL};
  int i;

  (void)state;
  toy_hub_init(&hub, 2);
  for (i = 0; i < 2; i++) {
    tfd__collective c;

    w[i] = (world){.group = join_hub(&hub, i, 1, 300), .small = true};
    make_pieces(&w[i], &p[i], TFD_FLOAT32, 10);
    fill_pieces(&w[i], &p[i], TFD_REDUCE_SUM);
    c = collective(TFD_COLLECTIVE_BROADCAST, TFD_REDUCE_SUM, &p[i], &p[i]);
    c.root = 1;
    assert_int_equal(TFD_OK, tfd__group_begin(w[i].group, &c, &t[i]));
  }
  while (!t[0]->done || !t[1]->done) {
    assert_true(tfd__now_ns() < until);
    for (i = 0; i < 2; i++) {
      if (!t[i]->done) tfd__ticket_attend(t[i]);
    }
    sched_yield();
    for (i = 0; i < 2; i++) tfd__group_recall(w[i].group);
  }
  for (i = 0; i < 2; i++) {
    assert_int_equal(TFD_OK, tfd__ticket_wait(t[i], until));
    tfd__ticket_end(t[i]);
    drop_pieces(&w[i], &p[i]);
    tfd__release(w[i].group);
  }
  toy_hub_end(&hub);
}

/* Who waits hears of it. */
static void so_do_their_failures(void **state) {
  lonely l;
  tfd__ticket *t = NULL;

  (void)state;
  lonely_init(&l, 300);
  assert_int_equal(TFD_OK, tfd__group_begin(l.w.group, &l.c, &t));
  tfd__ticket_attend(t);
  tfd__group_abort(l.w.group, "told to stop");
  tfd__group_recall(l.w.group);
  assert_int_equal(TFD_ABORTED, tfd__ticket_wait(t, TFD_FOREVER));
  assert_non_null(strstr(tfd_error_message(), "told to stop"));
  tfd__ticket_end(t);
  lonely_end(&l);
}

static void an_abort_ends_waits_everywhere(void **state) {
  lonely l;
  tfd__group *other = NULL;
  tfd__ticket *t = NULL;
  tfd__ticket *theirs = NULL;
  tfd__collective c;
  world w = {0};
  pieces p;
  pthread_t thread;
  void *rc = NULL;

  (void)state;
  lonely_init(&l, 300);
  other = join_hub(&l.hub, 1, 1, 300);
  w.group = other;
  make_pieces(&w, &p, TFD_FLOAT32, 10);
  c = collective(TFD_COLLECTIVE_BROADCAST, TFD_REDUCE_SUM, &p, &p);
  assert_int_equal(TFD_OK, tfd__group_begin(l.w.group, &l.c, &t));
  assert_int_equal(TFD_OK, tfd__group_begin(other, &c, &theirs));
  assert_int_equal(0, pthread_create(&thread, NULL, wait_for_ever, t));
  tfd__group_abort(l.w.group, "told to stop");
  pthread_join(thread, &rc);
  assert_int_equal(TFD_ABORTED, (intptr_t)rc);
  assert_int_equal(TFD_UNAVAILABLE, tfd__ticket_wait(theirs, TFD_FOREVER));
  tfd__group_abort(l.w.group, "later");
  expect_aborted(l.w.group, &l.c, "told to stop"); /* the first cause */
  expect_aborted(other, &c, "another worker has gone");
  tfd__ticket_end(t);
  tfd__ticket_end(theirs);
  drop_pieces(&w, &p);
  tfd__release(other);
  lonely_end(&l);
}

static void giving_up_fails_the_group(void **state) {
  lonely l;
  tfd__ticket *t = NULL;

  (void)state;
  lonely_init(&l, 300);
  assert_int_equal(TFD_OK, tfd__group_begin(l.w.group, &l.c, &t));
  tfd__ticket_end(t);
  expect_aborted(l.w.group, &l.c, "given up before its end");
  lonely_end(&l);
}

static void an_interrupt_that_gives_up_is_told(void **state) {
  lonely l;

  (void)state;
  lonely_init(&l, 300);
  tfd__interrupt_set(true);
  assert_int_equal(TFD_CANCELLED, tfd__group_run(l.w.group, &l.c, TFD_FOREVER));
  tfd__interrupt_set(false);
  expect_aborted(l.w.group, &l.c, "was interrupted in the middle");
  lonely_end(&l);
}

static void an_interrupt_ends_the_wait_alone(void **state) {
  lonely l;
  tfd__ticket *t = NULL;

  (void)state;
  lonely_init(&l, 300);
  assert_int_equal(TFD_OK, tfd__group_begin(l.w.group, &l.c, &t));
  tfd__interrupt_set(true);
  assert_int_equal(TFD_CANCELLED, tfd__ticket_wait(t, TFD_FOREVER));
  tfd__interrupt_set(false);
  assert_int_equal(TFD_OK, tfd__group_check(l.w.group, "check"));
  tfd__ticket_end(t);
  lonely_end(&l);
}

/* --- calls that are wrong ------------------------------------------------- */

static int begin(const world *w, const tfd__collective *c) {
  tfd__ticket *t = NULL;
  int rc = tfd__group_begin(w->group, c, &t);

  assert_null(t);
  return rc;
}

/* `c` has 10 elements of each of three ranks, `other` has 11. */
static void pieces_must_fit(const world *w, const tfd__collective *model,
                            const pieces *other) {
  static const int64_t counts[3] = {10, 9, 11};
  tfd__collective c = *model;

  c.kind = TFD_COLLECTIVE_GATHER;
  assert_int_equal(TFD_INVALID_ARGUMENT, begin(w, &c));
  assert_non_null(strstr(tfd_error_message(),
                         "rank 2 has 10 elements of int32 where there are to "
                         "be 30 of int32"));
  c.counts = counts;
  assert_int_equal(TFD_INVALID_ARGUMENT, begin(w, &c));
  assert_non_null(strstr(tfd_error_message(),
                         "rank 1 has 10 elements of int32 where there are to "
                         "be 9 of int32"));
  c.kind = TFD_COLLECTIVE_SCATTER;
  c.out = other->list;
  c.counts = NULL;
  assert_int_equal(TFD_INVALID_ARGUMENT, begin(w, &c));
  assert_non_null(strstr(tfd_error_message(),
                         "rank 2 has 10 elements of int32 where there are to "
                         "be 33 of int32"));
  c.root = -1;
  assert_int_equal(TFD_VALUE_ERROR, begin(w, &c));
  c.kind = TFD_COLLECTIVE_GATHER;
  c.root = 3;
  assert_int_equal(TFD_VALUE_ERROR, begin(w, &c));
  assert_non_null(strstr(tfd_error_message(), "there is no rank 3"));
}

static void wrong_calls_leave_the_group_alone(void **state) {
  tfd_device *devices[3] = {device(0), device(1), device(2)};
  tfd__group_config config = {.devices = devices, .local = 3, .size = 3};
  world w = {0};
  pieces p;
  pieces longer;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p, &p);
  tfd__piece kept;

  (void)state;
  assert_int_equal(TFD_OK, tfd__group_new(&config, &w.group));
  make_pieces(&w, &p, TFD_INT32, 10);
  make_pieces(&w, &longer, TFD_INT32, 11);
  kept = p.list[1];
  p.list[1] = longer.list[1];
  assert_int_equal(TFD_INVALID_ARGUMENT, begin(&w, &c));
  assert_non_null(strstr(tfd_error_message(), "rank 1 has 11 elements"));
  p.list[1] = p.list[2];
  assert_int_equal(TFD_INVALID_ARGUMENT, begin(&w, &c));
  assert_non_null(strstr(tfd_error_message(), "/cpu:2; expected /cpu:1"));
  p.list[1] = kept;
  c.op = TFD_REDUCE_MEAN;
  assert_int_equal(TFD_INVALID_ARGUMENT, begin(&w, &c));
  assert_non_null(strstr(tfd_error_message(), "no mean of int32; expected a "
                                              "float dtype (use tf.cast)"));
  c.op = TFD_REDUCE_SUM;
  c.kind = TFD_COLLECTIVE_REDUCE_SCATTER;
  assert_int_equal(TFD_INVALID_ARGUMENT, begin(&w, &c));
  assert_non_null(strstr(tfd_error_message(), "10 elements cannot be shared"));
  c.kind = TFD_COLLECTIVE_BROADCAST;
  c.root = 3;
  assert_int_equal(TFD_VALUE_ERROR, begin(&w, &c));
  c.root = 2;
  complete(&w, &c);
  pieces_must_fit(&w, &c, &longer);
  drop_pieces(&w, &p);
  drop_pieces(&w, &longer);
  tfd__release(w.group);
}

static int fail_kernel(const tfd__call *call) {
  return tfd__fail(TFD_OUT_OF_RANGE, "%s: as told", call->name);
}

/* A kernel's failure is the devices' affair: told to who waits, and the next
** collective works. */
static void a_failing_kernel_leaves_the_group_alone(void **state) {
  tfd_device *devices[2] = {device(0), device(1)};
  tfd__group_config config = {.devices = devices, .local = 2, .size = 2};
  world w = {0};
  pieces p;
  pieces out;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p, &out);
  tfd__ticket *t = NULL;

  (void)state;
  assert_int_equal(TFD_OK, tfd__group_new(&config, &w.group));
  make_pieces(&w, &p, TFD_FLOAT32, 9000);
  make_pieces(&w, &out, TFD_FLOAT32, 9000);
  fill_pieces(&w, &p, TFD_REDUCE_SUM);
  assert_int_equal(TFD_OK, submit_ints(device(1), fail_kernel, NULL, 0));
  assert_int_equal(TFD_OK, tfd__group_begin(w.group, &c, &t));
  assert_int_equal(TFD_OUT_OF_RANGE, tfd__ticket_wait(t, TFD_FOREVER));
  assert_int_equal(TFD_OUT_OF_RANGE, tfd__ticket_wait(t, TFD_FOREVER));
  tfd__ticket_end(t);
  complete(&w, &c);
  expect_run(&w, &out.list[0], 0, 9000, -1, 0, TFD_REDUCE_SUM);
  expect_run(&w, &out.list[1], 0, 9000, -1, 0, TFD_REDUCE_SUM);
  drop_pieces(&w, &p);
  drop_pieces(&w, &out);
  tfd__release(w.group);
}

static void a_rank_without_a_device_does_nothing(void **state) {
  tfd__group *g = NULL;
  tfd__collective c = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};

  (void)state;
  assert_int_equal(TFD_OK, tfd__group_solo(&g));
  assert_true(g->local == 1 && g->base == 0 && g->size == 1);
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd__group_run(g, &c, 0));
  tfd__group_abort(g, "no reason");
  assert_int_equal(TFD_ABORTED, tfd__group_run(g, &c, 0));
  tfd__release(g);
}

static void nothing_is_left(void **state) {
  (void)state;
  tfd__devices_finish();
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_GROUP));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_BUFFER));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case_among_workers),
      cmocka_unit_test(tables_that_do_not_do_are_refused),
      cmocka_unit_test(a_deadline_fails_the_group),
      cmocka_unit_test(so_does_the_groups_own_deadline),
      cmocka_unit_test(attended_tickets_get_done),
      cmocka_unit_test(so_do_their_failures),
      cmocka_unit_test(steps_have_the_calls_deadline),
      cmocka_unit_test(an_abort_ends_waits_everywhere),
      cmocka_unit_test(giving_up_fails_the_group),
      cmocka_unit_test(an_interrupt_that_gives_up_is_told),
      cmocka_unit_test(an_interrupt_ends_the_wait_alone),
      cmocka_unit_test(wrong_calls_leave_the_group_alone),
      cmocka_unit_test(a_failing_kernel_leaves_the_group_alone),
      cmocka_unit_test(a_rank_without_a_device_does_nothing),
      cmocka_unit_test(nothing_is_left),
  };

  configure("6", "queued");
  if (tfd__provider_register(&toy_provider) != TFD_OK) return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}

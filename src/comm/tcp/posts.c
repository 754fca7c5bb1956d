/* What goes out of values and comes in: parts of them, as frames. */
#include "comm/tcp/work.h"

void tfd__tcp_post(tfd__group *g, tfd__tcp_work *w, bool send, int process,
                   int tag, int64_t numel, const tfd__run_of *run) {
  const tfd__tcp_group *own = g->own;
  tfd__post *p = &w->posts[w->posts_n];
  size_t bytes = run == NULL ? 0 : tfd__view_bytes(&run->view);
  int dtype = run == NULL ? 0 : run->view.dtype;

  *p = (tfd__post){.process = own->circle.numbers[process],
                   .data = run == NULL ? NULL : run->view.data,
                   .frame = {.tag = (uint32_t)tag,
                             .seq = w->number,
                             .what = tfd__kept_signature(&w->kept, dtype) ^
                                     (uint64_t)w->way << 56,
                             .count = (uint64_t)numel,
                             .length = bytes}};
  tfd__frame_set_place(&p->frame, &w->kept.c);
  w->waited[w->posts_n++] = p;
  if (send) {
    tfd__mesh_send(own->circle.mesh, p);
  } else {
    tfd__mesh_receive(own->circle.mesh, p);
  }
}

tfd__run_of tfd__tcp_cut(const tfd__run_of *run, int64_t begin, int64_t end) {
  tfd__piece p = {run->buffer, &run->view};

  return tfd__part_of(&p, begin, end - begin);
}

void tfd__tcp_posts(tfd__group *g, tfd__tcp_work *w, bool send, int process,
                    int tag, int64_t numel, const tfd__run_of *run) {
  int64_t n = run->view.numel;
  int64_t each = TFD_TCP_FRAME / (int64_t)tfd__dtype_size(run->view.dtype);
  int64_t at = 0;

  do {
    tfd__run_of frame = tfd__tcp_cut(run, at, at + each < n ? at + each : n);

    tfd__tcp_post(g, w, send, process, tag, numel, &frame);
    at += each;
  } while (at < n);
}

tfd__stretch tfd__tcp_share(const tfd__tcp_work *w, const tfd__tcp_part *p,
                            int processes, int process) {
  int64_t each = p->numel / processes;

  if (w->kept.c.kind == TFD_COLLECTIVE_REDUCE_SCATTER) {
    return (tfd__stretch){process * each, (process + 1) * each};
  }
  if (w->way == TFD_WAY_WHOLE) return (tfd__stretch){0, p->numel};
  return tfd__stretch_of(p->numel, processes, process);
}

tfd__run_of tfd__tcp_result(const tfd__group *g, const tfd__tcp_work *w, int k,
                            tfd__stretch s) {
  return tfd__part_of(tfd__gotten(g, &w->kept.c, k, 0), s.begin,
                      s.end - s.begin);
}

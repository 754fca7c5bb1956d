/* Open MPI's side of the strategy benchmarks: sums between processes.
**
** usage: mpirun -n N mpi     reads requests from stdin, answers each:
**   allreduce BYTES     wall s of an MPI_Allreduce in place, the buffers
**                       rewritten before each: the median of many
**   quit                ends the program */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM = 3, TURNS = 400, LONG_TURNS = 21 };

static int compare(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;

  return (x > y) - (x < y);
}

static double all_reduce(long long bytes) {
  int n = (int)(bytes / 4);
  int turns = bytes > 1 << 20 ? LONG_TURNS : TURNS;
  double spent[TURNS];
  float *buffer = malloc((size_t)bytes);

  if (buffer == NULL) {
    fprintf(stderr, "mpi: out of memory\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 0;
  }
  for (int turn = 0; turn < turns + WARM; turn++) {
    double start;

    for (int i = 0; i < n; i++) buffer[i] = 1.0f;
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, buffer, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (turn >= WARM) spent[turn - WARM] = MPI_Wtime() - start;
  }
  free(buffer);
  qsort(spent, (size_t)turns, sizeof *spent, compare);
  return spent[turns / 2];
}

/* The next request, 0 for none yet, -1 for the end. Other ranks than 0 sleep
** while they wait: a spinning rank would take a core from whatever is
** measured. */
static long long request(int rank, int ranks) {
  char line[256];
  long long bytes = -1;
  int there = 0;

  if (rank != 0) {
    while (!there) {
      usleep(1000);
      MPI_Iprobe(0, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&bytes, 1, MPI_LONG_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return bytes;
  }
  if (fgets(line, sizeof line, stdin) != NULL &&
      strncmp(line, "quit", 4) != 0 &&
      (sscanf(line, "allreduce %lld", &bytes) != 1 || bytes < 4)) {
    printf("failed: no such request: %s", line);
    fflush(stdout);
    return 0;
  }
  for (int to = 1; to < ranks; to++) {
    MPI_Send(&bytes, 1, MPI_LONG_LONG, to, 0, MPI_COMM_WORLD);
  }
  return bytes;
}

int main(int argc, char **argv) {
  long long bytes = 0;
  int rank = 0;
  int ranks = 0;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  while ((bytes = request(rank, ranks)) >= 0) {
    double spent = bytes > 0 ? all_reduce(bytes) : 0;

    if (rank == 0 && bytes > 0) {
      printf("%.9g\n", spent);
      fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}

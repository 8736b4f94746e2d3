// The number of this process in its job, 0 if it has none. torchrun and most launchers set RANK. Others set at
// least LOCAL_RANK, the number of the process on its host; with GROUP_RANK, the number of the host, and
// LOCAL_WORLD_SIZE that gives the rank. Under srun the rank is SLURM_PROCID, unless the task itself started
// several processes: then LOCAL_RANK differs from SLURM_LOCALID.
#pragma once

#include <cstdlib>
#include <cstring>

namespace inductor_rewriter {

// The value of an environment variable; -1 if it is not set, or not a number.
inline int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return -1;
  const bool sound = std::strspn(text, "0123456789") == std::strlen(text);
  return sound && std::strlen(text) < 10 ? std::atoi(text) : -1;
}

inline int read_rank() {
  const int rank = number_of("RANK"), local = number_of("LOCAL_RANK");
  const int host = number_of("GROUP_RANK"), step = number_of("SLURM_PROCID");
  if (rank >= 0) return rank;
  if (local >= 0 && host >= 0) {
    const int each = number_of("LOCAL_WORLD_SIZE");
    return host * (each > 0 ? each : 0) + local;
  }
  if (step >= 0 && (local < 0 || local == number_of("SLURM_LOCALID"))) return step;
  return local > 0 ? local : 0;
}

// The number of processes in the job, 0 if unknown.
inline int read_size() {
  const int size = number_of("WORLD_SIZE"), tasks = number_of("SLURM_NTASKS");
  if (size >= 0) return size;
  return number_of("SLURM_PROCID") >= 0 && tasks > 0 ? tasks : 0;
}

}  // namespace inductor_rewriter

// A libnvidia-ml.so.1 with one GPU at 00000000:4E:00.0, whose answers a test sets by the functions
// double_*. Built whole, as an old driver has it, and with a function missing.

#include <cstring>

namespace {
int failing = 0;  // the status that every call but nvmlErrorString and nvmlShutdown gives
int running = 0;
unsigned long long now_limiting = 0;
int gpu = 0;
}  // namespace

extern "C" {

void double_fail(int status) { failing = status; }
void double_limit(unsigned long long limits) { now_limiting = limits; }
int double_running() { return running; }

int nvmlInit_v2() {
  if (failing == 0) ++running;
  return failing;
}

int nvmlShutdown() {
  --running;
  return 0;
}

const char* nvmlErrorString(int status) {
  return status == 9 ? "Driver Not Loaded" : "Not Supported";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (std::strcmp(bus_id, "00000000:4E:00.0") != 0) return 6;
  *device = &gpu;
  return failing;
}

int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::strncpy(text, "580.95.05", bytes);
  return failing;
}

#ifndef STEPSCOPE_NO_CLOCKS
int nvmlDeviceGetClockInfo(void* device, int which, unsigned* mhz) {
  if (device != &gpu) return 2;
  *mhz = which == 1 ? 1980 : (which == 2 ? 3201 : 0);
  return failing;
}
#endif

#ifdef STEPSCOPE_OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* limits) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* limits) {
#endif
  if (device != &gpu) return 2;
  *limits = now_limiting;
  return failing;
}

}  // extern "C"

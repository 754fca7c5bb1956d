/* What the Lua side asks of the system: a clock that only goes forward, the
** width of a terminal, how far the queues are, an end in order. */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "lua/bind.h"
#include "tensor/tensor.h"

/* monotonic() -> seconds since some moment in the past. */
static int system_monotonic(lua_State *L) {
  lua_pushnumber(L, (lua_Number)tfd__now_ns() * 1e-9);
  return 1;
}

/* wall_time() -> seconds since 1970, with microseconds. */
static int system_wall_time(lua_State *L) {
  struct timespec now;

  clock_gettime(CLOCK_REALTIME, &now);
  lua_pushnumber(L, (lua_Number)now.tv_sec + (lua_Number)now.tv_nsec * 1e-9);
  return 1;
}

/* terminal_width(fd) -> columns, or nil when fd is no terminal; terminals that
** do not tell have 80. */
static int system_terminal_width(lua_State *L) {
  int fd = (int)luaL_checknumber(L, 1);
  struct winsize size = {0};
  int columns = 80;

  if (isatty(fd) != 1) return 0;
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    columns = size.ws_col;
  lua_pushnumber(L, (lua_Number)columns);
  return 1;
}

/* stop_devices(): before the process ends. */
static int system_stop_devices(lua_State *L) {
  (void)L;
  tfd__devices_stop();
  return 0;
}

/* device_position(device) -> how many calls were submitted to it so far */
static int system_device_position(lua_State *L) {
  const tfd__lua_arg arg = {"device_position", "device", 1, false};
  const tfd_device *device = tfd__lua_handle(L, TFD_HANDLE_DEVICE, &arg);

  lua_pushnumber(L, (lua_Number)tfd__stream_seq(device));
  return 1;
}

/* tensor_is_pending(t) -> true until the queue has filled it; never waits */
static int system_tensor_is_pending(lua_State *L) {
  const tfd__lua_arg arg = {"tensor_is_pending", "tensor", 1, false};
  const tfd_tensor *t = tfd__lua_handle(L, TFD_HANDLE_TENSOR, &arg);

  lua_pushboolean(L, t->buffer != NULL &&
                         tfd__buffer_state_of(t->buffer) == TFD_BUFFER_PENDING);
  return 1;
}

/* set_environment(name, value): for libraries that are opened later and for
** processes that are started from here. */
static int system_set_environment(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);

  if (setenv(name, luaL_checkstring(L, 2), 1) != 0)
    return luaL_error(L, "set_environment: %s cannot be set", name);
  return 0;
}

static int closing(lua_State *L) {
  (void)L;
  tfd__devices_finish();
  return 0;
}

/* A process that closes its last state may exit next, or unload libraries. */
void tfd__lua_finish_on_close(lua_State *L) {
  (void)lua_newuserdata(L, 1);
  lua_newtable(L);
  lua_pushcfunction(L, closing);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, "tfdist.closing");
}

const luaL_Reg tfd__lua_system_functions[] = {
    {"device_position", system_device_position},
    {"monotonic", system_monotonic},
    {"set_environment", system_set_environment},
    {"wall_time", system_wall_time},
    {"stop_devices", system_stop_devices},
    {"tensor_is_pending", system_tensor_is_pending},
    {"terminal_width", system_terminal_width},
    {NULL, NULL},
};

/* What the Lua side asks of the system: a clock that only goes forward, the
** width of a terminal, an end in order. */
#include <sys/ioctl.h>
#include <unistd.h>

#include "device/device.h"
#include "lua/bind.h"

/* monotonic() -> seconds since some moment in the past. */
static int system_monotonic(lua_State *L) {
  lua_pushnumber(L, (lua_Number)tfd__now_ns() * 1e-9);
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
    {"monotonic", system_monotonic},
    {"stop_devices", system_stop_devices},
    {"terminal_width", system_terminal_width},
    {NULL, NULL},
};

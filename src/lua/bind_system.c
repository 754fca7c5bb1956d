/* What the Lua side asks of the system: a clock that only goes forward and
** the width of a terminal. */
#include <sys/ioctl.h>
#include <unistd.h>

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

const luaL_Reg tfd__lua_system_functions[] = {
    {"monotonic", system_monotonic},
    {"terminal_width", system_terminal_width},
    {NULL, NULL},
};

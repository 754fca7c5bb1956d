/* Protobuf messages for lua/tfdist/io/wire.lua: one field at a time. */
#include "io/io.h"
#include "lua/bind.h"

/* message_number(x) -> its bytes; negative ones are of 64 bits */
static int bind_number(lua_State *L) {
  unsigned char room[10];
  tfd__bytes bytes = {room, 0, sizeof room}; /* enough: nothing is allocated */
  int64_t x = 0;

  if (!tfd__lua_to_i64(L, 1, &x)) {
    return tfd__lua_error(L, "TypeError", NULL,
                          "message_number: expected a whole number, got %s",
                          tfd__lua_what(L, 1));
  }
  TFD_LUA_TRY(L, tfd__bytes_number(&bytes, (uint64_t)x));
  lua_pushlstring(L, (const char *)room, bytes.n);
  return 1;
}

/* message_field(data, at, what) -> field, value, where the next one begins;
** nothing at the end. Values with a length, or of 4 or 8 bytes, are strings. */
static int bind_field(lua_State *L) {
  size_t n = 0;
  const char *data = luaL_checklstring(L, 1, &n);
  size_t at = (size_t)luaL_checknumber(L, 2) - 1;
  tfd__message m = {NULL, 0, luaL_checkstring(L, 3)};
  tfd__message bytes;
  uint64_t field = 0;
  uint64_t x = 0;
  int wire = 0;

  if (at >= n) return 0;
  m.p = (const unsigned char *)data + at;
  m.n = n - at;
  TFD_LUA_TRY(L, tfd__message_key(&m, &field, &wire));
  if (wire == TFD_WIRE_NUMBER) {
    TFD_LUA_TRY(L, tfd__message_number(&m, &x));
    lua_pushnumber(L, (lua_Number)field);
    lua_pushnumber(L, (lua_Number)(int64_t)x);
  } else {
    TFD_LUA_TRY(L, tfd__message_bytes(&m, wire, &bytes));
    lua_pushnumber(L, (lua_Number)field);
    lua_pushlstring(L, (const char *)bytes.p, bytes.n);
  }
  lua_pushnumber(L, (lua_Number)(n - m.n + 1));
  return 3;
}

const luaL_Reg tfd__lua_message_functions[] = {{"message_field", bind_field},
                                               {"message_number", bind_number},
                                               {NULL, NULL}};

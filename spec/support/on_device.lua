--- Helper of busted: specs run on device 0 of the type TFDIST_SPEC_TYPE, where
--- they name none, and take their strategies' devices from that type.
local raw = require "tfdist.core.raw"

raw.device_push(raw.device_find((os.getenv "TFDIST_SPEC_TYPE" or "CPU") .. ":0"))

--- The seed of what tests draw: TFD_TEST_SEED, which scripts/test.lua sets for all of
--- its suites, or another one in each run. Below 1,000,000.
return math.floor(tonumber(os.getenv "TFD_TEST_SEED") or os.time()) % 1000000

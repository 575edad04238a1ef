//! Rows of the commands for HyperLogLogs. The columns are the fields of `Row`.

macro_rules! hyperloglogs_rows {
    ($with:ident) => {
        $with! { "hyperloglog";
        "pfadd", -2, Data(hyperloglog::pfadd), GROW | FAST, [first(RW | INSERT)],
            "hyperloglog", Event::Own,
            "2.8.9", "O(1) for each element", "Adds elements to a HyperLogLog",
            "key [element ..]";
        "pfcount", -2, Data(hyperloglog::pfcount), READ | MAY_WRITE,
            [all_from(1, RW | ACCESS).noted("Written, since the estimate is kept with the key")],
            "hyperloglog", Event::None,
            "2.8.9", "O(1) for one key, O(N) with N the keys",
            "Estimates how many different elements HyperLogLogs have together",
            "key [key ..]";
        "pfdebug", 3, Data(hyperloglog::pfdebug), GROW | ADMIN, [at(2, RW | ACCESS)],
            "hyperloglog", Event::None,
            "2.8.9", "-", "Shows how a HyperLogLog is encoded, or makes it dense",
            "subcommand key";
        "pfmerge", -2, Data(hyperloglog::pfmerge), GROW,
            [first(RW | ACCESS | INSERT), all_from(2, RO | ACCESS)],
            "hyperloglog", Event::Named("pfadd"),
            "2.8.9", "O(N) with N the keys", "Merges HyperLogLogs into one",
            "destkey [sourcekey ..]";
        "pfselftest", 1, Data(hyperloglog::pfselftest), ADMIN, [], "hyperloglog", Event::None,
            "2.8.9", "-", "Tests whether HyperLogLogs count as they should",
            "";
        }
    };
}
pub(crate) use hyperloglogs_rows;

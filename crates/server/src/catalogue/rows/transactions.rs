//! Rows of the commands for transactions. The columns are the fields of `Row`.

macro_rules! transactions_rows {
    ($with:ident) => { $with! { "transactions";
    "discard", 1, Multi(), FAST | NOSCRIPT | ALLOW_BUSY, [], "transaction", Event::None,
        "2.0.0", "O(N) with N the queued commands", "Ends MULTI, and drops what it has queued",
        "";
    "exec", 1, Multi(), NOSCRIPT | SKIP_SLOWLOG, [], "transaction", Event::None,
        "1.2.0", "That of the queued commands", "Runs what MULTI has queued, as one transaction",
        "";
    "multi", 1, Multi(), FAST | NOSCRIPT | ALLOW_BUSY, [], "transaction", Event::None,
        "1.2.0", "O(1)", "Begins a transaction: the commands that follow are queued for EXEC",
        "";
    "unwatch", 1, Data(watching::unwatch), FAST | ALONE | NOSCRIPT | ALLOW_BUSY, [],
        "transaction", Event::None,
        "2.2.0", "O(1)", "Forgets the keys of WATCH",
        "";
    "watch", -2, Data(watching::watch), FAST | ALONE | NOSCRIPT | ALLOW_BUSY,
        [all_from(1, RO)], "transaction", Event::None,
        "2.2.0", "O(1) for each key",
        "Has the next EXEC run nothing if one of the keys has changed by then",
        "key [key ..]";
    } };
}
pub(crate) use transactions_rows;

//! Rows of the commands for strings. The columns are the fields of `Row`.

macro_rules! strings_rows {
    ($with:ident) => { $with! { "string";
    "append", 3, Data(strings::append), GROW | FAST, [first(RW | INSERT)], "string", Event::Own,
        "2.0.0", "O(1)", "Adds to the end of a string; creates it if there is none",
        "key value";
    "decr", 2, Data(numbers::decr), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "string", Event::Named("incrby"),
        "1.0.0", "O(1)", "Subtracts 1 from the integer of a key; 0 if there is none",
        "key";
    "decrby", 3, Data(numbers::decrby), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "string", Event::Named("incrby"),
        "1.0.0", "O(1)", "Subtracts from the integer of a key; 0 if there is none",
        "key decrement";
    "delifeq", 3, Data(comparing::delifeq), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "string", Event::None,
        "9.0.0", "O(1)", "Deletes a key that holds this string",
        "key value";
    "delex", -2, Data(comparing::delex), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "string", Event::None,
        "8.4.0", "O(1), or O(N) with N the bytes of a string to compare",
        "Deletes a key, if a comparison with its string holds",
        "key condition:[IFEQ value|IFNE value|IFDEQ digest|IFDNE digest]";
    "digest", 2, Data(comparing::digest_command), READ, [first(RO | ACCESS)],
        "string", Event::None,
        "8.4.0", "O(N) with N the bytes", "Returns the XXH3 digest of a string",
        "key";
    "get", 2, Data(strings::get), READ | FAST, [first(RO | ACCESS)], "string", Event::None,
        "1.0.0", "O(1)", "Returns the string of a key",
        "key";
    "getdel", 2, Data(strings::getdel), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "string", Event::None,
        "6.2.0", "O(1)", "Returns the string of a key, and deletes the key",
        "key";
    "getex", -2, Data(strings::getex), WRITE | FAST, [first(RW | ACCESS | UPDATE)],
        "string", Event::Expiry,
        "6.2.0", "O(1)", "Returns the string of a key, and sets or removes its time of expiry",
        "key expiration:[EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT \
         unix-time-milliseconds|PERSIST]";
    "getrange", 4, Data(strings::getrange), READ, [first(RO | ACCESS)], "string", Event::None,
        "2.4.0", "O(N) with N the bytes returned", "Returns a part of a string",
        "key start end";
    "getset", 3, Data(strings::getset), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "string", Event::Set,
        "1.0.0", "O(1)", "Sets the string of a key, and returns the one before",
        "key value";
    // The example of a new command: its row, and one function. Only tests have the command.
    #[cfg(test)]
    "hyades.example", -3, Data(example::example), GROW | FAST, [first(RW | INSERT)],
        "string", Event::Own,
        "0.1.0", "O(1)", "Adds words to the end of a string",
        "key word [word ..]";
    "incr", 2, Data(numbers::incr), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "string", Event::Named("incrby"),
        "1.0.0", "O(1)", "Adds 1 to the integer of a key; to 0 if there is none",
        "key";
    "incrby", 3, Data(numbers::incrby), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "string", Event::Named("incrby"),
        "1.0.0", "O(1)", "Adds to the integer of a key; to 0 if there is none",
        "key increment";
    "incrbyfloat", 3, Data(numbers::incrbyfloat), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "string", Event::Own,
        "2.6.0", "O(1)", "Adds to the number of a key; to 0 if there is none",
        "key increment:double";
    "lcs", -3, Data(lcs::lcs), READ, [range_of((1, 1, 1), RO | ACCESS)], "string", Event::None,
        "7.0.0", "O(N*M) with N and M the lengths",
        "Finds the longest common subsequence of two strings",
        "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]";
    "mget", -2, Data(strings::mget), READ | FAST, [all_from(1, RO | ACCESS)],
        "string", Event::None,
        "1.0.0", "O(N) with N the keys", "Returns the strings of several keys",
        "key [key ..]";
    "mset", -3, Data(strings::mset), GROW, [range_of((1, -1, 2), OW | UPDATE)],
        "string", Event::Set,
        "1.0.1", "O(N) with N the keys", "Sets the strings of several keys",
        "key value [key value ..]";
    "msetex", -4, Data(strings::msetex), GROW,
        [counted_pairs(1, 2, OW | UPDATE)],
        "string", Event::Told,
        "8.4.0", "O(N) with N the keys", "Sets the strings of several keys, and when they expire",
        "numkeys key value [key value ..] condition:[NX|XX] expiration:[EX seconds|PX \
         milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL]";
    "msetnx", -3, Data(strings::msetnx), GROW, [range_of((1, -1, 2), OW | INSERT)],
        "string", Event::Set,
        "1.0.1", "O(N) with N the keys", "Sets the strings of several keys if none of them exists",
        "key value [key value ..]";
    "psetex", 4, Data(strings::psetex), GROW, [first(OW | UPDATE)], "string", Event::SetExpiring,
        "2.6.0", "O(1)", "Sets the string of a key, and its time to live in milliseconds",
        "key milliseconds value";
    "set", -3, Data(strings::set), GROW,
        [first(RW | ACCESS | UPDATE | VARIABLE).with_flags(DEPENDS, finders::set_flags)],
        "string", Event::SetWithOptions,
        "1.0.0", "O(1)", "Sets the string of a key, whatever it held",
        "key value condition:[NX|XX|IFEQ value|IFNE value|IFDEQ digest|IFDNE digest] [GET] \
         expiration:[EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT \
         unix-time-milliseconds|KEEPTTL]";
    "setex", 4, Data(strings::setex), GROW, [first(OW | UPDATE)], "string", Event::SetExpiring,
        "2.0.0", "O(1)", "Sets the string of a key, and its time to live in seconds",
        "key seconds value";
    "setnx", 3, Data(strings::setnx), GROW | FAST, [first(OW | INSERT)], "string", Event::Set,
        "1.0.0", "O(1)", "Sets the string of a key that does not exist",
        "key value";
    "setrange", 4, Data(strings::setrange), GROW, [first(RW | UPDATE)], "string", Event::Own,
        "2.2.0", "O(N) with N the bytes written", "Overwrites a part of a string",
        "key offset value";
    "strlen", 2, Data(strings::strlen), READ | FAST, [first(RO)], "string", Event::None,
        "2.2.0", "O(1)", "Returns the length of a string",
        "key";
    "substr", 4, Data(strings::getrange), READ, [first(RO | ACCESS)], "string", Event::None,
        "1.0.0", "O(N) with N the bytes returned", "Returns a part of a string, as GETRANGE does",
        "key start end";
    } };
}
pub(crate) use strings_rows;

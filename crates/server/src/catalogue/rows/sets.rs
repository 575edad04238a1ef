//! Rows of the commands for sets. The columns are the fields of `Row`.

macro_rules! sets_rows {
    ($with:ident) => { $with! { "set";
    "sadd", -3, Data(sets::sadd), GROW | FAST, [first(RW | INSERT)], "set", Event::Own,
        "1.0.0", "O(N) with N the members", "Adds members to a set; creates it if there is none",
        "key member [member ..]";
    "scard", 2, Data(sets::scard), READ | FAST, [first(RO)], "set", Event::None,
        "1.0.0", "O(1)", "Returns the number of members of a set",
        "key";
    "sdiff", -2, Data(sets::sdiff), READ, [all_from(1, RO | ACCESS)], "set", Event::None,
        "1.0.0", "O(N) with N all members",
        "Returns the members of the first set that no other has",
        "key [key ..]";
    "sdiffstore", -3, Data(sets::sdiffstore), GROW,
        [first(OW | UPDATE), all_from(2, RO | ACCESS)], "set", Event::Stored("sdiffstore"),
        "1.0.0", "O(N) with N all members", "Stores the members of the first set that no other has",
        "destination key [key ..]";
    "sinter", -2, Data(sets::sinter), READ, [all_from(1, RO | ACCESS)], "set", Event::None,
        "1.0.0", "O(N*M) with N the smallest set and M sets",
        "Returns the members that all sets have",
        "key [key ..]";
    "sintercard", -3, Data(sets::sintercard), READ, [counted(1, RO | ACCESS)], "set", Event::None,
        "7.0.0", "O(N*M) with N the smallest set and M sets",
        "Counts the members that all sets have",
        "numkeys key [key ..] [LIMIT limit]";
    "sinterstore", -3, Data(sets::sinterstore), GROW,
        [first(RW | UPDATE), all_from(2, RO | ACCESS)],
        "set", Event::Stored("sinterstore"),
        "1.0.0", "O(N*M) with N the smallest set and M sets",
        "Stores the members that all sets have",
        "destination key [key ..]";
    "sismember", 3, Data(sets::sismember), READ | FAST, [first(RO)], "set", Event::None,
        "1.0.0", "O(1)", "Returns whether a set has a member",
        "key member";
    "smembers", 2, Data(sets::smembers), READ, [first(RO | ACCESS)], "set", Event::None,
        "1.0.0", "O(N) with N the members", "Returns all members of a set",
        "key";
    "smismember", -3, Data(sets::smismember), READ | FAST, [first(RO | ACCESS)], "set", Event::None,
        "6.2.0", "O(N) with N the members asked for", "Returns which members a set has",
        "key member [member ..]";
    "smove", 4, Data(sets::smove), WRITE | FAST, [first(RW | ACCESS | DELETE), at(2, RW | INSERT)],
        "set", Event::MemberMoved,
        "1.0.0", "O(1)", "Moves a member from a set to another",
        "source destination member";
    "spop", -2, Data(sets::spop), WRITE | FAST, [first(RW | ACCESS | DELETE)], "set", Event::Own,
        "1.0.0", "O(N) with N the members taken", "Takes random members from a set",
        "key [count]";
    "srandmember", -2, Data(sets::srandmember), READ, [first(RO | ACCESS)], "set", Event::None,
        "1.0.0", "O(N) with N the members returned", "Returns random members of a set",
        "key [count]";
    "srem", -3, Data(sets::srem), WRITE | FAST, [first(RW | DELETE)], "set", Event::Own,
        "1.0.0", "O(N) with N the members", "Removes members from a set",
        "key member [member ..]";
    "sscan", -3, Data(collections::sscan), READ, [first(RO | ACCESS)], "set", Event::None,
        "2.8.0", "O(1) for each call", "Goes through the members of a set, a part with each call",
        "key cursor [MATCH pattern] [COUNT count]";
    "sunion", -2, Data(sets::sunion), READ, [all_from(1, RO | ACCESS)], "set", Event::None,
        "1.0.0", "O(N) with N all members", "Returns the members that any set has",
        "key [key ..]";
    "sunionstore", -3, Data(sets::sunionstore), GROW,
        [first(OW | UPDATE), all_from(2, RO | ACCESS)],
        "set", Event::Stored("sunionstore"),
        "1.0.0", "O(N) with N all members", "Stores the members that any set has",
        "destination key [key ..]";
    } };
}
pub(crate) use sets_rows;

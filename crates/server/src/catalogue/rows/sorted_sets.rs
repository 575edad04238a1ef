//! Rows of the commands for sorted sets. The columns are the fields of `Row`.

macro_rules! sorted_sets_rows {
    ($with:ident) => { $with! { "sorted-set";
    "bzmpop", -5, Data(blocking::bzmpop), WRITE | BLOCKS, [counted(2, RW | ACCESS | DELETE)],
        "sortedset", Event::PoppedAt("MIN", "zpopmin", "zpopmax"),
        "7.0.0", "O(K+M*log(N)) with K keys and M members",
        "Takes members from the first sorted set that has some, or waits",
        "timeout:double numkeys key [key ..] where:(MIN|MAX) [COUNT count]";
    "bzpopmax", -3, Data(blocking::bzpopmax), WRITE | BLOCKS | FAST | NOSCRIPT,
        [range_of((1, -2, 1), RW | ACCESS | DELETE)], "sortedset", Event::Named("zpopmax"),
        "5.0.0", "O(log(N))",
        "Takes the member with the highest score of the first sorted set that has one, or waits",
        "key [key ..] timeout:double";
    "bzpopmin", -3, Data(blocking::bzpopmin), WRITE | BLOCKS | FAST | NOSCRIPT,
        [range_of((1, -2, 1), RW | ACCESS | DELETE)], "sortedset", Event::Named("zpopmin"),
        "5.0.0", "O(log(N))",
        "Takes the member with the lowest score of the first sorted set that has one, or waits",
        "key [key ..] timeout:double";
    "zadd", -4, Data(sorted_sets::zadd), GROW | FAST, [first(RW | UPDATE)],
        "sortedset", Event::ScoresAdded,
        "1.2.0", "O(log(N)) for each member",
        "Adds members to a sorted set, or changes their scores",
        "key condition:[NX|XX] comparison:[GT|LT] [change:CH] [increment:INCR] score member \
         [score member ..]";
    "zcard", 2, Data(sorted_sets::zcard), READ | FAST, [first(RO)], "sortedset", Event::None,
        "1.2.0", "O(1)", "Returns the number of members of a sorted set",
        "key";
    "zcount", 4, Data(sorted_set_ranges::zcount), READ | FAST, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "2.0.0", "O(log(N))", "Counts the members in a range of scores",
        "key min:double max:double";
    "zdiff", -3, Data(sorted_set_algebra::zdiff), READ, [counted(1, RO | ACCESS)],
        "sortedset", Event::None,
        "6.2.0", "O(L+(N-K)*log(N))",
        "Returns the members of the first sorted set that no other has",
        "numkeys key [key ..] [WITHSCORES]";
    "zdiffstore", -4, Data(sorted_set_algebra::zdiffstore), GROW,
        [first(OW | UPDATE), counted(2, RO | ACCESS)], "sortedset", Event::Stored("zdiffstore"),
        "6.2.0", "O(L+(N-K)*log(N))",
        "Stores the members of the first sorted set that no other has",
        "destination numkeys key [key ..]";
    "zincrby", 4, Data(sorted_sets::zincrby), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "sortedset", Event::Named("zincr"),
        "1.2.0", "O(log(N))", "Adds to the score of a member",
        "key increment member";
    "zinter", -3, Data(sorted_set_algebra::zinter), READ, [counted(1, RO | ACCESS)],
        "sortedset", Event::None,
        "6.2.0", "O(N*K+M*log(M))", "Returns the members that all sorted sets have",
        "numkeys key [key ..] [WEIGHTS weight [weight ..]] aggregate:[AGGREGATE (SUM|MIN|MAX)] \
         [WITHSCORES]";
    "zintercard", -3, Data(sorted_set_algebra::zintercard), READ, [counted(1, RO | ACCESS)],
        "sortedset", Event::None,
        "7.0.0", "O(N*K)", "Counts the members that all sorted sets have",
        "numkeys key [key ..] [LIMIT limit]";
    "zinterstore", -4, Data(sorted_set_algebra::zinterstore), GROW,
        [first(OW | UPDATE), counted(2, RO | ACCESS)], "sortedset", Event::Stored("zinterstore"),
        "2.0.0", "O(N*K+M*log(M))", "Stores the members that all sorted sets have",
        "destination numkeys key [key ..] [WEIGHTS weight [weight ..]] aggregate:[AGGREGATE \
         (SUM|MIN|MAX)]";
    "zlexcount", 4, Data(sorted_set_ranges::zlexcount), READ | FAST, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "2.8.9", "O(log(N))", "Counts the members in a range of members with equal scores",
        "key min max";
    "zmpop", -4, Data(sorted_sets::zmpop), WRITE, [counted(1, RW | ACCESS | DELETE)],
        "sortedset", Event::PoppedAt("MIN", "zpopmin", "zpopmax"),
        "7.0.0", "O(K+M*log(N)) with K keys and M members",
        "Takes members from the first sorted set that has some",
        "numkeys key [key ..] where:(MIN|MAX) [COUNT count]";
    "zmscore", -3, Data(sorted_sets::zmscore), READ | FAST, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "6.2.0", "O(N) with N the members", "Returns the scores of several members",
        "key member [member ..]";
    "zpopmax", -2, Data(sorted_sets::zpopmax), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "sortedset", Event::Named("zpopmax"),
        "5.0.0", "O(M*log(N)) with M the members taken",
        "Takes the members with the highest scores",
        "key [count]";
    "zpopmin", -2, Data(sorted_sets::zpopmin), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "sortedset", Event::Named("zpopmin"),
        "5.0.0", "O(M*log(N)) with M the members taken", "Takes the members with the lowest scores",
        "key [count]";
    "zrandmember", -2, Data(sorted_sets::zrandmember), READ, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "6.2.0", "O(N) with N the members returned", "Returns random members of a sorted set",
        "key options:[count [WITHSCORES]]";
    "zrange", -4, Data(sorted_set_ranges::zrange), READ, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "1.2.0", "O(log(N)+M) with M the members returned",
        "Returns a range of members by rank, score or member",
        "key start:string stop:string sortby:[BYSCORE|BYLEX] [REV] [LIMIT offset count] \
         [WITHSCORES]";
    "zrangebylex", -4, Data(sorted_set_ranges::zrangebylex), READ, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "2.8.9", "O(log(N)+M) with M the members returned",
        "Returns a range of members with equal scores",
        "key min max [LIMIT offset count]";
    "zrangebyscore", -4, Data(sorted_set_ranges::zrangebyscore), READ, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "1.0.5", "O(log(N)+M) with M the members returned",
        "Returns the members in a range of scores",
        "key min:double max:double [WITHSCORES] [LIMIT offset count]";
    "zrangestore", -5, Data(sorted_set_ranges::zrangestore), GROW,
        [first(OW | UPDATE), at(2, RO | ACCESS)], "sortedset", Event::Stored("zrangestore"),
        "6.2.0", "O(log(N)+M) with M the members stored",
        "Stores a range of members by rank, score or member",
        "dst src min max sortby:[BYSCORE|BYLEX] [REV] [LIMIT offset count]";
    "zrank", -3, Data(sorted_sets::zrank), READ | FAST, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "2.0.0", "O(log(N))", "Returns the rank of a member, from the lowest score on",
        "key member [WITHSCORE]";
    "zrem", -3, Data(sorted_sets::zrem), WRITE | FAST, [first(RW | DELETE)],
        "sortedset", Event::Own,
        "1.2.0", "O(M*log(N)) with M the members", "Removes members from a sorted set",
        "key member [member ..]";
    "zremrangebylex", 4, Data(sorted_set_ranges::zremrangebylex), WRITE, [first(RW | DELETE)],
        "sortedset", Event::Own,
        "2.8.9", "O(log(N)+M) with M those removed", "Removes a range of members with equal scores",
        "key min max";
    "zremrangebyrank", 4, Data(sorted_set_ranges::zremrangebyrank), WRITE, [first(RW | DELETE)],
        "sortedset", Event::Own,
        "2.0.0", "O(log(N)+M) with M those removed", "Removes a range of members by rank",
        "key start stop";
    "zremrangebyscore", 4, Data(sorted_set_ranges::zremrangebyscore), WRITE, [first(RW | DELETE)],
        "sortedset", Event::Own,
        "1.2.0", "O(log(N)+M) with M those removed", "Removes the members in a range of scores",
        "key min:double max:double";
    "zrevrange", -4, Data(sorted_set_ranges::zrevrange), READ, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "1.2.0", "O(log(N)+M) with M the members returned",
        "Returns a range of members by rank, from the highest score on",
        "key start stop [WITHSCORES]";
    "zrevrangebylex", -4, Data(sorted_set_ranges::zrevrangebylex), READ, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "2.8.9", "O(log(N)+M) with M the members returned",
        "Returns a range of members with equal scores, last first",
        "key max min [LIMIT offset count]";
    "zrevrangebyscore", -4, Data(sorted_set_ranges::zrevrangebyscore), READ, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "2.2.0", "O(log(N)+M) with M the members returned",
        "Returns the members in a range of scores, highest first",
        "key max:double min:double [WITHSCORES] [LIMIT offset count]";
    "zrevrank", -3, Data(sorted_sets::zrevrank), READ | FAST, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "2.0.0", "O(log(N))", "Returns the rank of a member, from the highest score on",
        "key member [WITHSCORE]";
    "zscan", -3, Data(collections::zscan), READ, [first(RO | ACCESS)], "sortedset", Event::None,
        "2.8.0", "O(1) for each call",
        "Goes through the members of a sorted set, a part with each call",
        "key cursor [MATCH pattern] [COUNT count]";
    "zscore", 3, Data(sorted_sets::zscore), READ | FAST, [first(RO | ACCESS)],
        "sortedset", Event::None,
        "1.2.0", "O(1)", "Returns the score of a member",
        "key member";
    "zunion", -3, Data(sorted_set_algebra::zunion), READ, [counted(1, RO | ACCESS)],
        "sortedset", Event::None,
        "6.2.0", "O(N+M*log(M))", "Returns the members that any sorted set has",
        "numkeys key [key ..] [WEIGHTS weight [weight ..]] aggregate:[AGGREGATE (SUM|MIN|MAX)] \
         [WITHSCORES]";
    "zunionstore", -4, Data(sorted_set_algebra::zunionstore), GROW,
        [first(OW | UPDATE), counted(2, RO | ACCESS)], "sortedset", Event::Stored("zunionstore"),
        "2.0.0", "O(N+M*log(M))", "Stores the members that any sorted set has",
        "destination numkeys key [key ..] [WEIGHTS weight [weight ..]] aggregate:[AGGREGATE \
         (SUM|MIN|MAX)]";
    } };
}
pub(crate) use sorted_sets_rows;

//! Rows of the commands for lists. The columns are the fields of `Row`.

macro_rules! lists_rows {
    ($with:ident) => { $with! { "list";
    "blmove", 6, Data(blocking::blmove), GROW | BLOCKS | NOSCRIPT,
        [first(RW | ACCESS | DELETE), at(2, RW | INSERT)], "list", Event::ElementMovedBetween,
        "6.2.0", "O(1)", "Moves an element between lists, and waits for one if there is none",
        "source destination wherefrom:(LEFT|RIGHT) whereto:(LEFT|RIGHT) timeout:double";
    "blmpop", -5, Data(blocking::blmpop), WRITE | BLOCKS, [counted(2, RW | ACCESS | DELETE)],
        "list", Event::PoppedAt("LEFT", "lpop", "rpop"),
        "7.0.0", "O(N+M) with N keys and M elements",
        "Takes elements from the first list that has some, or waits",
        "timeout:double numkeys key [key ..] where:(LEFT|RIGHT) [COUNT count]";
    "blpop", -3, Data(blocking::blpop), WRITE | BLOCKS | NOSCRIPT,
        [range_of((1, -2, 1), RW | ACCESS | DELETE)], "list", Event::Named("lpop"),
        "2.0.0", "O(N) with N the keys",
        "Takes the first element of the first list that has one, or waits",
        "key [key ..] timeout:double";
    "brpop", -3, Data(blocking::brpop), WRITE | BLOCKS | NOSCRIPT,
        [range_of((1, -2, 1), RW | ACCESS | DELETE)], "list", Event::Named("rpop"),
        "2.0.0", "O(N) with N the keys",
        "Takes the last element of the first list that has one, or waits",
        "key [key ..] timeout:double";
    "brpoplpush", 4, Data(blocking::brpoplpush), GROW | BLOCKS | NOSCRIPT,
        [first(RW | ACCESS | DELETE), at(2, RW | INSERT)], "list", Event::ElementMoved,
        "2.2.0", "O(1)",
        "Moves the last element of a list to the front of another, or waits for one",
        "source destination timeout:double";
    "lindex", 3, Data(lists::lindex), READ, [first(RO | ACCESS)], "list", Event::None,
        "1.0.0", "O(N) with N the elements passed", "Returns an element by its index",
        "key index";
    "linsert", 5, Data(list_edits::linsert), GROW, [first(RW | INSERT)], "list", Event::Own,
        "2.2.0", "O(N) with N the elements passed", "Inserts an element before or after another",
        "key where:(BEFORE|AFTER) pivot element";
    "llen", 2, Data(lists::llen), READ | FAST, [first(RO)], "list", Event::None,
        "1.0.0", "O(1)", "Returns the number of elements of a list",
        "key";
    "lmove", 5, Data(list_edits::lmove), GROW, [first(RW | ACCESS | DELETE), at(2, RW | INSERT)],
        "list", Event::ElementMovedBetween,
        "6.2.0", "O(1)", "Moves an element between lists",
        "source destination wherefrom:(LEFT|RIGHT) whereto:(LEFT|RIGHT)";
    "lmpop", -4, Data(list_edits::lmpop), WRITE, [counted(1, RW | ACCESS | DELETE)],
        "list", Event::PoppedAt("LEFT", "lpop", "rpop"),
        "7.0.0", "O(N+M) with N keys and M elements",
        "Takes elements from the first list that has some",
        "numkeys key [key ..] where:(LEFT|RIGHT) [COUNT count]";
    "lpop", -2, Data(lists::lpop), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "list", Event::Named("lpop"),
        "1.0.0", "O(N) with N the elements", "Takes elements from the front of a list",
        "key [count]";
    "lpos", -3, Data(list_edits::lpos), READ, [first(RO | ACCESS)], "list", Event::None,
        "6.0.6", "O(N) with N the elements of the list", "Finds an element in a list",
        "key element [RANK rank] [COUNT num-matches] [MAXLEN len]";
    "lpush", -3, Data(lists::lpush), GROW | FAST, [first(RW | INSERT)],
        "list", Event::Named("lpush"),
        "1.0.0", "O(N) with N the elements",
        "Adds elements at the front of a list; creates it if there is none",
        "key element [element ..]";
    "lpushx", -3, Data(lists::lpushx), GROW | FAST, [first(RW | INSERT)],
        "list", Event::Named("lpush"),
        "2.2.0", "O(N) with N the elements", "Adds elements at the front of a list that exists",
        "key element [element ..]";
    "lrange", 4, Data(lists::lrange), READ, [first(RO | ACCESS)], "list", Event::None,
        "1.0.0", "O(S+N) with S the distance and N the elements", "Returns a range of elements",
        "key start stop";
    "lrem", 4, Data(list_edits::lrem), WRITE, [first(RW | DELETE)], "list", Event::Own,
        "1.0.0", "O(N+M) with N the length and M those removed",
        "Removes elements that are equal to one",
        "key count element";
    "lset", 4, Data(list_edits::lset), GROW, [first(RW | UPDATE)], "list", Event::Own,
        "1.0.0", "O(N) with N the elements passed", "Sets an element by its index",
        "key index element";
    "ltrim", 4, Data(list_edits::ltrim), WRITE, [first(RW | DELETE)], "list", Event::Own,
        "1.0.0", "O(N) with N those removed", "Removes all elements outside of a range",
        "key start stop";
    "rpop", -2, Data(lists::rpop), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "list", Event::Named("rpop"),
        "1.0.0", "O(N) with N the elements", "Takes elements from the end of a list",
        "key [count]";
    "rpoplpush", 3, Data(list_edits::rpoplpush), GROW,
        [first(RW | ACCESS | DELETE), at(2, RW | INSERT)], "list", Event::ElementMoved,
        "1.2.0", "O(1)", "Moves the last element of a list to the front of another",
        "source destination";
    "rpush", -3, Data(lists::rpush), GROW | FAST, [first(RW | INSERT)],
        "list", Event::Named("rpush"),
        "1.0.0", "O(N) with N the elements",
        "Adds elements at the end of a list; creates it if there is none",
        "key element [element ..]";
    "rpushx", -3, Data(lists::rpushx), GROW | FAST, [first(RW | INSERT)],
        "list", Event::Named("rpush"),
        "2.2.0", "O(N) with N the elements", "Adds elements at the end of a list that exists",
        "key element [element ..]";
    } };
}
pub(crate) use lists_rows;

//! A command is one row of the catalogue and one function: the rest follows from the row.

use super::*;

/// `hyades.example` has a row in the catalogue and a function, and is named nowhere else.
#[test]
fn a_command_of_one_row_and_one_function_is_everywhere() {
    let mut house = House::new(false);
    let mut c = house.client();
    let mut say = |line: &str| house.say(&mut c, format!("{line}\r\n").as_bytes());
    // The command runs, with its arity and its access to keys.
    assert_eq!(say("Hyades.Example k a b"), ":2 ");
    assert!(say("HYADES.EXAMPLE k").contains("wrong number of arguments"));
    assert_eq!(say("GET k"), "$2 ab ");
    // COMMAND.
    let info = say("COMMAND INFO hyades.example");
    for part in ["hyades.example :-3", "+write", "+denyoom", "+fast", ":1 :1 :1"] {
        assert!(info.contains(part), "{part}: {info}");
    }
    assert!(info.contains("+@write") && info.contains("+@string") && info.contains("+insert"));
    let docs = say("COMMAND DOCS hyades.example");
    for part in ["Adds words to the end of a string", "0.1.0", "O(1)", "string", "word"] {
        assert!(docs.contains(part), "{part}: {docs}");
    }
    assert!(say("COMMAND LIST").contains("hyades.example"));
    assert!(say("COMMAND LIST FILTERBY ACLCAT string").contains("hyades.example"));
    assert_eq!(say("COMMAND GETKEYS hyades.example a b c"), "*1 $1 a ");
    assert!(say("COMMAND GETKEYSANDFLAGS hyades.example a b c").contains("+insert"));
    // Access.
    assert!(say("ACL CAT write").contains("hyades.example"));
    assert_eq!(say("ACL SETUSER u on nopass %R~r* %W~w* +@string"), "+OK ");
    assert_eq!(say("ACL DRYRUN u hyades.example w1 x"), "+OK ");
    assert!(say("ACL DRYRUN u hyades.example r1 x").contains("access the 'r1' key"));
    assert_eq!(say("ACL SETUSER u -hyades.example"), "+OK ");
    assert!(say("ACL DRYRUN u hyades.example w1 x").contains("run the 'hyades.example' command"));
    // Statistics.
    assert!(say("INFO commandstats").contains("cmdstat_hyades.example:calls=1,"));
}

#[test]
fn the_event_of_a_command_follows_from_its_row() {
    let mut house = House::new(false);
    let (mut listener, mut c) = (house.client(), house.client());
    house.say(&mut c, b"CONFIG SET notify-keyspace-events KEA\r\n");
    house.say(&mut listener, b"PSUBSCRIBE __keyspace*\r\n");
    house.say(&mut c, b"HYADES.EXAMPLE k a\r\n");
    let told = house.say(&mut listener, b"");
    assert!(told.contains("__keyspace@0__:k $14 hyades.example"), "{told}");
}

//! Transcripts of commands that write if a key holds a certain string.

use super::*;

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_string_is_replaced_if_it_is_this_one() {
    transcript(&[
        ("SET k new IFEQ old", "$-1"),
        ("SET k old", "+OK"),
        ("SET k new IFEQ other", "$-1"),
        ("SET k new IFEQ ol", "$-1"),
        ("SET k new EX 100 IFEQ old", "+OK"),
        ("SET k newer IFEQ new GET KEEPTTL", "$3 new"),
        ("TTL k", ":100"),
        ("SET k none IFEQ new GET", "$5 newer"),
        ("GET k", "$5 newer"),
        ("SET k x IFEQ newer NX", "-ERR syntax error"),
        ("SET k x XX IFEQ newer", "-ERR syntax error"),
        ("SET k x IFEQ", "-ERR syntax error"),
        ("LPUSH l a", ":1"),
        ("SET l x IFEQ a", WRONG),
        ("SETRANGE long 1100000 x", ":1100001"),
        ("SET long x IFEQ x", "$-1"),
    ]);
}

#[test]
fn a_key_is_deleted_if_it_holds_this_string() {
    transcript(&[
        ("DELIFEQ k a", ":0"),
        ("SET k a", "+OK"),
        ("DELIFEQ k b", ":0"),
        ("DELIFEQ k a", ":1"),
        ("EXISTS k", ":0"),
        ("LPUSH l a", ":1"),
        ("DELIFEQ l a", WRONG),
        ("DELIFEQ l", "-ERR wrong number of arguments for 'delifeq' command"),
    ]);
}

/// The digest of "a" and of another string, by the reference implementation of XXH3.
#[test]
fn strings_are_compared_by_difference_and_by_digest() {
    let digest = "-ERR digest must be exactly 16 hexadecimal characters";
    transcript(&[
        ("SET k a IFNE a", "+OK"),
        ("SET k b IFNE a", "$-1"),
        ("SET k a IFNE b", "+OK"),
        ("DIGEST k", "$16 e6c632b61e964e1f"),
        ("DIGEST none", "$-1"),
        ("SET k b IFDEQ e6c632b61e964e10", "$-1"),
        ("SET k b IFDNE E6C632B61E964E1F", "$-1"),
        ("SET none b IFDEQ e6c632b61e964e1f", "$-1"),
        ("SET k b IFDEQ E6C632B61E964E1F GET", "$1 a"),
        ("SET k a IFDNE e6c632b61e964e1f KEEPTTL", "+OK"),
        ("SET k a IFDEQ 1234", digest),
        ("SET k a IFDNE +6c632b61e964e1f", digest),
        ("SET k a IFEQ a IFNE b", "-ERR syntax error"),
        ("SET k a NX IFDEQ e6c632b61e964e1f", "-ERR syntax error"),
        ("DELEX k IFEQ b", ":0"),
        ("DELEX k IFNE a", ":0"),
        ("DELEX k IFDNE e6c632b61e964e1f", ":0"),
        ("DELEX none IFNE a", ":0"),
        ("DELEX k IFDEQ e6c632b61e964e1f", ":1"),
        ("SET k a", "+OK"),
        ("DELEX k IFNE b", ":1"),
        ("LPUSH l a", ":1"),
        ("DELEX l IFEQ a", WRONG),
        ("DIGEST l", WRONG),
        ("DELEX l IFXX a", "-ERR syntax error"),
        ("DELEX l IFEQ", "-ERR wrong number of arguments for 'delex' command"),
        ("DELEX l", ":1"),
        ("DELEX l", ":0"),
    ]);
}

#[test]
fn several_strings_are_set_with_one_time() {
    transcript(&[
        ("MSETEX 2 a 1 b 2 EX 100", ":1"),
        ("MGET a b", "*2 $1 1 $1 2"),
        ("TTL b", ":100"),
        ("MSETEX 2 b 3 c 4 NX", ":0"),
        ("MSETEX 2 b 3 c 4 XX", ":0"),
        ("MSETEX 1 b 3 XX KEEPTTL", ":1"),
        ("TTL b", ":100"),
        ("MSETEX 2 c NX d XX NX", ":1"),
        ("MGET a b c d", "*4 $1 1 $1 3 $2 NX $2 XX"),
        ("TTL c", ":-1"),
        ("MSETEX 1 a 1 PXAT 1", ":1"),
        ("EXISTS a", ":0"),
        ("MSETEX 0 a 1", "-ERR invalid numkeys value"),
        ("MSETEX 2 a 1", "-ERR wrong number of arguments for 'msetex' command"),
        ("MSETEX 1 a 1 GET", "-ERR syntax error"),
        ("MSETEX 1 a 1 IFEQ 1", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command"),
    ]);
}

/// A string in chunks is compared piece by piece.
#[test]
fn long_strings_are_compared_to_their_ends() {
    let mut house = House::new(false);
    let mut client = house.client();
    let long = "x".repeat(3 << 20);
    let other = format!("{}y", &long[1..]);
    let mut say = |words: &[&str]| {
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let words: Vec<String> = words.collect();
        let line = format!("*{}\r\n{}", words.len(), words.concat());
        house.say(&mut client, line.as_bytes())
    };
    assert_eq!(say(&["SET", "k", &long]), "+OK ");
    assert_eq!(say(&["DELIFEQ", "k", &other]), ":0 ");
    assert_eq!(say(&["SET", "k", "a", "IFEQ", &other]), "$-1 ");
    assert_eq!(say(&["SET", "k", "a", "IFEQ", &long]), "+OK ");
    assert_eq!(say(&["GET", "k"]), "$1 a ");
}

//! Users, and their permissions.

use super::*;

fn users(lines: &str) -> Users {
    let mut users = Users::default();
    users.read(lines.as_bytes(), "a.acl").unwrap();
    users
}

fn check(users: &Users, name: &str, line: &str) -> Result<(), Denied> {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    users.find(name).unwrap().check(&args)
}

#[test]
fn only_the_default_user_with_all_rights_needs_no_checks() {
    let mut users = Users::default();
    assert!(!users.is_restricted());
    users.set_default_password("secret");
    assert!(users.is_restricted());
    users.set_default_password("");
    assert!(!users.is_restricted());
    users.change("other", &[b"on"]).unwrap();
    assert!(users.is_restricted());
    assert!(users.remove("other") && !users.is_restricted());
    for rule in [&b"off"[..], b"-get", b"resetkeys", b"resetchannels", b"resetpass", b"reset"] {
        let mut users = users.clone();
        users.change(DEFAULT, &[rule]).unwrap();
        assert!(users.is_restricted(), "{rule:?}");
    }
}

#[test]
fn a_password_or_its_hash_logs_in() {
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let mut users = users(&format!("user a on >one #{hash}\nuser b >one\nuser c on nopass"));
    let logs_in = |users: &Users, name: &str, password: &str| {
        users.log_in(name.as_bytes(), password.as_bytes()).is_some()
    };
    assert!(logs_in(&users, "a", "one") && logs_in(&users, "a", "secret"));
    assert!(!logs_in(&users, "a", "two") && !logs_in(&users, "a", ""));
    assert!(!logs_in(&users, "b", "one"), "it is off");
    assert!(logs_in(&users, "c", "anything") && !logs_in(&users, "d", "one"));
    assert!(!logs_in(&users, "A", "one"), "names have cases");
    users.change("a", &[b"<one"]).unwrap();
    assert!(!logs_in(&users, "a", "one") && logs_in(&users, "a", "secret"));
    let error = users.change("a", &[b"<one"]).unwrap_err();
    assert!(error.ends_with("The password you are trying to remove from the user does not exist"));
    assert!(!error.contains("one'"), "{error}");
    assert!(users.change("a", &[b"#abc"]).unwrap_err().contains("exactly 64 characters"));
    users.change("a", &[b"resetpass"]).unwrap();
    assert!(!logs_in(&users, "a", "secret"));
}

#[test]
fn a_request_needs_one_set_of_rules_that_allows_all_of_it() {
    let users = users(
        "user a on nopass +get ~a* (+set ~b* resetchannels) (+mget ~c ~d) (+publish &news:*)\n\
         user s on nopass -@all +config|get +@connection -client|kill -select +select|0",
    );
    for (line, expected) in [
        ("GET a1", Ok(())),
        ("GET b1", Err(Denied::Key(1))),
        ("SET b1 1", Ok(())),
        ("SET a1 1", Err(Denied::Key(1))),
        ("MGET c d", Ok(())),
        ("MGET c d e", Err(Denied::Key(3))),
        ("DEL a1", Err(Denied::Command)),
        ("PUBLISH news:1 x", Ok(())),
        ("PUBLISH old x", Err(Denied::Channel(1))),
        ("AUTH x", Ok(())),
        ("XADD a1 * f v", Err(Denied::Command)),
        ("NO-SUCH-COMMAND", Err(Denied::Command)),
    ] {
        assert_eq!(check(&users, "a", line), expected, "{line}");
    }
    for (line, allowed) in [
        ("SELECT 0", true),
        ("SELECT 1", false),
        ("CONFIG GET a", true),
        ("CONFIG SET a b", false),
        ("CLIENT KILL x", false),
        ("client id", true),
    ] {
        assert_eq!(check(&users, "s", line).is_ok(), allowed, "{line}");
    }
    assert_eq!(check(&users, "default", "XADD a1 * f v"), Ok(()));
}

#[test]
fn sort_reads_other_keys_only_with_the_right_to_all() {
    let users = users("user a on nopass +sort ~list\nuser b on nopass +sort ~list %R~*");
    let refused = |name: &str, line: &str| {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        users.find(name).unwrap().refused_sort_option(&args)
    };
    assert_eq!(refused("a", "SORT list BY w_*"), Some("BY"));
    assert_eq!(refused("a", "SORT list GET w_*"), Some("GET"));
    assert_eq!(refused("a", "SORT list LIMIT 0 1 GET w_*"), Some("GET"));
    assert_eq!(refused("a", "SORT list BY nosort LIMIT 0 1 ALPHA DESC"), None);
    assert_eq!(refused("b", "SORT list BY w_* GET v_*"), None);
}

#[test]
fn a_file_is_read_whole_or_not_at_all() {
    let mut all = users("user a on >x ~k* resetchannels &c -@all +get (~m +set)\n\n");
    let mut again = Users::default();
    let lines =
        |users: &Users| users.iter().map(|user| user.line()).collect::<Vec<_>>().join(&b'\n');
    again.read(&lines(&all), "a.acl").unwrap();
    assert_eq!(lines(&again), lines(&all));
    for (text, error) in [
        ("user a on\nuser a off", "Duplicate user 'a' found on line 2"),
        ("user default on\nuser default on", "Duplicate user 'default' found"),
        ("usr a", "a.acl:1 should start with user keyword"),
        ("user a +nothing", "a.acl:1: Error in applying operation '+nothing': Unknown command"),
        ("user a (+get", "Unmatched parenthesis"),
        ("user a nonsense", "a.acl:1: Syntax error"),
    ] {
        let told = all.read(text.as_bytes(), "a.acl").unwrap_err();
        assert!(told.contains(error), "{told}");
        assert!(told.ends_with("no change to the previously active ACL rules was performed"));
        assert_eq!(lines(&again), lines(&all));
    }
}

#[test]
fn rules_of_several_words_are_put_together() {
    let put = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let merged = merged(&words)?;
        Ok(merged.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect())
    };
    let text = |words: &[&str]| -> Result<Vec<String>, Vec<u8>> { put(words) };
    assert_eq!(text(&["(", "~k", "+get)", "on"]).unwrap(), ["( ~k +get)", "on"]);
    assert_eq!(text(&["(~k)", "(+get", ")"]).unwrap(), ["(~k)", "(+get )"]);
    assert_eq!(text(&["on", "(~k", "+get"]).unwrap_err(), b"(~k");
}

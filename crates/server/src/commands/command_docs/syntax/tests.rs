use super::*;

/// An argument with all its fields.
fn shown(argument: &Argument) -> String {
    let parts: Vec<String> = argument.parts.iter().map(shown).collect();
    let mut text = argument.token.map_or(String::new(), |token| format!("'{token}' "));
    text += &format!("{}:{}", argument.name, argument.kind.name());
    if let Some(spec) = argument.key_spec {
        text += &format!("@{spec}");
    }
    if !parts.is_empty() {
        text += &format!("({})", parts.join(", "));
    }
    for (is_so, sign) in
        [(argument.is_optional, "?"), (argument.is_multiple, "*"), (argument.repeats_token, "T")]
    {
        text += if is_so { sign } else { "" };
    }
    text
}

fn told(line: &'static str) -> String {
    match parse(line) {
        Ok(arguments) => arguments.iter().map(shown).collect::<Vec<_>>().join(", "),
        Err(text) => text,
    }
}

#[test]
fn lines_are_arguments() {
    for (line, expected) in [
        ("", ""),
        ("key value", "key:key, value:string"),
        ("key  \n    value", "key:key, value:string"),
        ("timeout:double score ip:port", "timeout:double, score:double, ip:port:string"),
        ("unix-time-seconds [GET]", "unix-time-seconds:unix-time, 'GET' get:pure-token?"),
        ("[change:CH]", "'CH' change:pure-token?"),
        ("key [key ..]", "key:key*"),
        ("[key ..]", "key:key?*"),
        ("key [member ..]", "key:key, member:string?*"),
        (
            "key field value [field value ..]",
            "key:key, field_value:block(field:string, value:string)*",
        ),
        ("key [COUNT count]", "key:key, 'COUNT' count:integer?"),
        ("[WEIGHTS weight [weight ..]]", "'WEIGHTS' weight:integer?*"),
        ("[GET pattern@1 [GET pattern@1 ..]]", "'GET' pattern:pattern@1?*T"),
        ("[LIMIT offset count]", "'LIMIT' offset_count:block(offset:integer, count:integer)?"),
        ("[NX|XX]", "nx_xx:oneof('NX' nx:pure-token, 'XX' xx:pure-token)?"),
        ("where:(LEFT|RIGHT)", "where:oneof('LEFT' left:pure-token, 'RIGHT' right:pure-token)"),
        ("how:[BY (MIN|seconds)]", "'BY' how:oneof('MIN' min:pure-token, seconds:integer)?"),
        ("[A a|B b c]", "a_b_c:oneof('A' a:string, 'B' b_c:block(b:string, c:string))?"),
        ("(key|\"\")", "key_empty_string:oneof(key:key, '' empty_string:pure-token)"),
        ("key [(a|B) ..]", "key:key, a_b:oneof(a:string, 'B' b:pure-token)?*"),
        ("(a|(b|c) ..)", "a_b_c:oneof(a:string, b_c:oneof(b:string, c:string)*)"),
        ("i:[start [stop]]", "i:block(start:integer, stop:integer?)?"),
    ] {
        assert_eq!(told(line), expected, "{line}");
    }
}

#[test]
fn what_is_no_syntax_is_an_error() {
    for (line, expected) in [
        ("[a", "`[` has no end"),
        ("a]", "`]` ends nothing"),
        ("a|b", "`|` ends nothing"),
        ("[a)", "`)` ends `[`"),
        ("(a]", "`]` ends `(`"),
        ("a ..", "`..` is not at the end of brackets"),
        ("[a .. b]", "`..` is not at the end of brackets"),
        ("[]", "brackets hold nothing"),
        ("[..]", "brackets hold nothing"),
        ("n:[a]", "`n` names a single argument"),
        ("n: a", "`n:` is no name"),
        ("Ab", "`Ab` is no name"),
        ("key@x", "`key@x` has no number behind @"),
        ("[NO ONE]", "what stands behind NO is no argument"),
    ] {
        assert_eq!(told(line), expected, "{line}");
    }
}

#[test]
fn the_fewest_words_are_counted() {
    for (line, least, is_fixed) in [
        ("", 0, true),
        ("key value", 2, true),
        ("key [key ..]", 1, false),
        ("key [value]", 1, false),
        ("(A a|B b)", 2, true),
        ("(A a|b)", 1, false),
        ("(key|\"\") x", 2, true),
        ("key value [key value ..]", 2, false),
    ] {
        let arguments = parse(line).unwrap();
        assert_eq!(least_words(&arguments), least, "{line}");
        assert_eq!(arguments.iter().all(Argument::is_fixed), is_fixed, "{line}");
    }
}

#[test]
fn each_key_has_its_specification() {
    let numbered = |line, specs| {
        let mut arguments = parse(line).unwrap();
        number_keys(&mut arguments, specs);
        arguments.iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(numbered("source destination", 2), "source:key@0, destination:key@1");
    assert_eq!(numbered("key1 key2", 1), "key1:key@0, key2:key@0");
    assert_eq!(numbered("key destination@2", 3), "key:key@0, destination:key@2");
    assert_eq!(numbered("(key|\"\") [KEYS key [key ..]]", 2).matches("key@1").count(), 1);
    assert_eq!(numbered("key", 0), "key:key");
}

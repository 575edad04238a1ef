//! Functions: libraries are kept, run, listed, moved and deleted.

use super::scripts::{request, says};
use super::*;

const LIBRARY: &str = "#!lua name=mylib\n\
    redis.register_function('echo', function(keys, args) return {keys, args} end)\n\
    redis.register_function{function_name='Read', flags={'no-writes'}, description='reads',\n\
    callback=function(keys) return redis.call('get', keys[1]) end}\n";

#[test]
fn libraries_are_loaded_run_and_deleted() {
    let mut house = House::new(false);
    let mut client = house.client();
    says(
        &mut house,
        &mut client,
        &[
            (&["FUNCTION", "LOAD", LIBRARY], "$5 mylib"),
            (&["FUNCTION", "LOAD", LIBRARY], "-ERR Library 'mylib' already exists"),
            (&["FUNCTION", "LOAD", "REPLACE", LIBRARY], "$5 mylib"),
            (&["FCALL", "echo", "1", "k", "a", "b"], "*2 *1 $1 k *2 $1 a $1 b"),
            (&["SET", "k", "v"], "+OK"),
            (&["FCALL", "READ", "1", "k"], "$1 v"),
            (&["FCALL_RO", "read", "1", "k"], "$1 v"),
            (
                &["FCALL_RO", "echo", "0"],
                "-ERR Can not execute a script with write flag using *_ro command.",
            ),
            (&["FCALL", "nosuch", "0"], "-ERR Function not found"),
            (&["FCALL", "echo", "x"], "-ERR Bad number of keys provided"),
            (
                &["FUNCTION", "LIST"],
                "*1 *6 $12 library_name $5 mylib $6 engine $3 LUA $9 functions *2 *6 $4 name $4 \
                 echo $11 description $-1 $5 flags *0 *6 $4 name $4 Read $11 description $5 reads \
                 $5 flags *1 +no-writes",
            ),
            (&["FUNCTION", "LIST", "LIBRARYNAME", "x*"], "*0"),
            (
                &["FUNCTION", "STATS"],
                "*4 $14 running_script $-1 $7 engines *2 $3 LUA *4 $15 libraries_count :1 $15 \
                 functions_count :2",
            ),
            (&["FUNCTION", "KILL"], "-NOTBUSY No scripts in execution right now."),
            (&["FUNCTION", "DELETE", "mylib"], "+OK"),
            (&["FUNCTION", "DELETE", "mylib"], "-ERR Library not found"),
            (&["FCALL", "echo", "0"], "-ERR Function not found"),
            (&["FUNCTION", "LIST"], "*0"),
        ],
    );
}

#[test]
fn what_is_wrong_with_a_library_is_told() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"CONFIG SET script-time-limit 50\r\n");
    let registering = "-ERR Error registering functions: ERR";
    let wrong_name = "Library names can only contain letters, numbers, or underscores(_) and must \
                      be at least one character long";
    for (code, expected) in [
        ("return 1", "-ERR Missing library metadata".to_string()),
        ("#!lua\nreturn 1", "-ERR Library name was not given".into()),
        ("#!foo name=x\nreturn 1", "-ERR Engine 'foo' not found".into()),
        ("#!lua name=x foo=y\n", "-ERR Invalid metadata value given: foo=y".into()),
        ("#!lua name=a-b\n", format!("-ERR {wrong_name}")),
        ("#!lua name=x", "-ERR Invalid library metadata".into()),
        ("#!lua name=x\nreturn 1", "-ERR No functions registered".into()),
        (
            "#!lua name=x\nfoo(",
            "-ERR Error compiling function: user_function:2: unexpected symbol near '<eof>'".into(),
        ),
        (
            "#!lua name=x\nredis.register_function('f-1', function() end)",
            format!("{registering} {wrong_name}"),
        ),
        (
            "#!lua name=x\nredis.register_function('f')",
            format!(
                "{registering} calling redis.register_function with a single argument is only \
                 applicable to Lua table (representing named arguments)."
            ),
        ),
        (
            "#!lua name=x\nredis.register_function('f', 'x')",
            format!("{registering} second argument to redis.register_function must be a function"),
        ),
        (
            "#!lua name=x\nredis.register_function('f', function() end)\n\
             redis.register_function('F', function() end)",
            format!("{registering} Function already exists in the library"),
        ),
        ("#!lua name=x\nwhile true do end", "-ERR Error running script: ".into()),
    ] {
        let said = house.say(&mut client, &request(&["FUNCTION", "LOAD", code]));
        assert!(said.starts_with(&expected), "{code}: {said}");
    }
    says(&mut house, &mut client, &[(&["FUNCTION", "LIST"], "*0")]);
}

/// An error of a function, and a function of another library with the same name.
#[test]
fn errors_of_functions_name_them() {
    let mut house = House::new(false);
    let mut client = house.client();
    let library = |name: &str, body: &str| {
        format!("#!lua name={name}\nredis.register_function('f', function() {body} end)")
    };
    says(
        &mut house,
        &mut client,
        &[
            (&["FUNCTION", "LOAD", &library("x", "error('boo')")], "$1 x"),
            (&["FCALL", "f", "0"], "-ERR user_function:2: boo script: f, on @user_function:2."),
            (&["FUNCTION", "LOAD", &library("y", "")], "-ERR Function f already exists"),
            (&["FUNCTION", "LIST", "LIBRARYNAME", "y"], "*0"),
            (&["FUNCTION", "LOAD", "REPLACE", &library("x", "return KEYS")], "$1 x"),
            (
                &["FCALL", "f", "0"],
                "-ERR user_function:2: Script attempted to access nonexistent global variable \
                 'KEYS' script: f, on @user_function:2.",
            ),
        ],
    );
}

#[test]
fn a_payload_brings_libraries_to_another_server() {
    let mut house = House::new(false);
    let mut client = house.client();
    says(&mut house, &mut client, &[(&["FUNCTION", "LOAD", LIBRARY], "$5 mylib")]);
    let dumped = house.replies(&mut client, &request(&["FUNCTION", "DUMP"]));
    let head = dumped.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let payload = &dumped[head..dumped.len() - 2];
    let restore = |house: &mut House, client: &mut Conversation, policy: &str| {
        let mut bytes =
            format!("*4\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n${}\r\n", payload.len()).into_bytes();
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(format!("\r\n${}\r\n{policy}\r\n", policy.len()).as_bytes());
        house.say(client, &bytes)
    };
    let mut other = House::new(false);
    let mut there = other.client();
    assert_eq!(restore(&mut other, &mut there, "APPEND").trim_end(), "+OK");
    says(&mut other, &mut there, &[(&["FCALL", "echo", "0", "a"], "*2 *0 *1 $1 a")]);
    let twice = restore(&mut other, &mut there, "APPEND");
    assert_eq!(twice.trim_end(), "-ERR Library 'mylib' already exists");
    assert_eq!(restore(&mut other, &mut there, "REPLACE").trim_end(), "+OK");
    assert_eq!(restore(&mut other, &mut there, "FLUSH").trim_end(), "+OK");
    let wrong = restore(&mut other, &mut there, "x");
    assert!(wrong.starts_with("-ERR Wrong restore policy given"), "{wrong}");
    says(
        &mut other,
        &mut there,
        &[
            (&["FUNCTION", "RESTORE", "xx"], "-ERR DUMP payload version or checksum are wrong"),
            (&["FUNCTION", "FLUSH"], "+OK"),
            (&["FUNCTION", "LIST"], "*0"),
        ],
    );
}

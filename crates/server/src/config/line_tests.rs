//! The errors for a wrong line of a file, or of the command line: as in Redis, with the right form.

use super::*;

fn read(arguments: &[&str]) -> Result<Settings, ConfigError> {
    parse::from_arguments(arguments, &|_| None)
}

/// The shown line, and the text behind the line.
fn refused(arguments: &[&str]) -> (String, String) {
    let text = read(arguments).unwrap_err().to_string();
    let parts: Vec<&str> = text.lines().collect();
    assert_eq!(parts.len(), 4, "{text}");
    assert_eq!(parts[..2], ["*** FATAL CONFIG FILE ERROR ***", "Reading the command line"]);
    let line = parts[2].strip_prefix(">>> '").and_then(|line| line.strip_suffix('\''));
    (line.unwrap().to_string(), parts[3].to_string())
}

#[test]
fn a_wrong_value_is_shown_with_its_line() {
    let cases: &[(&[&str], &str, &str)] = &[
        (
            &["--port", "x"],
            r#"port "x""#,
            "argument couldn't be parsed into an integer: port must be a number from 0 to 65535, \
             and not \"x\"",
        ),
        (
            &["--PORT", "65536"],
            r#"PORT "65536""#,
            "argument must be between 0 and 65535 inclusive: port must be a number from 0 to \
             65535, and not \"65536\"",
        ),
        (&["--port"], "port", "wrong number of arguments: port needs a value"),
        (
            &["--port", "6379", "6380"],
            r#"port "6379" "6380""#,
            "wrong number of arguments: port takes one value, and not 2: quotes make one of \
             several",
        ),
        (
            &["--prot", "1"],
            r#"prot "1""#,
            "Bad directive or wrong number of arguments: there is no setting \"prot\"",
        ),
        (
            &["--protected-mode", "1"],
            r#"protected-mode "1""#,
            "argument must be 'yes' or 'no': protected-mode must be yes or no, and not \"1\"",
        ),
        (
            &["--loglevel", "--bla"],
            r#"loglevel "--bla""#,
            "argument(s) must be one of the following: debug, verbose, notice, warning, nothing: \
             loglevel must be one of these, and not \"--bla\"",
        ),
        (
            &["--maxmemory", "1gbyte"],
            r#"maxmemory "1gbyte""#,
            "argument must be a memory value: maxmemory must be a size such as 1024, 64kb or 1gb, \
             and not \"1gbyte\"",
        ),
        (&["--user"], "user", "wrong number of arguments: user needs a value"),
        (
            &["--min-replicas-to-write", "1"],
            r#"min-replicas-to-write "1""#,
            "min-replicas-to-write cannot be \"1\": there are no replicas",
        ),
    ];
    for (arguments, line, text) in cases {
        let (shown, said) = refused(arguments);
        assert_eq!((&shown[..], &said[..]), (*line, *text), "{arguments:?}");
    }
    let (_, include) = refused(&["--include", "other.conf"]);
    assert!(include.ends_with("put the lines of that file in its place"), "{include}");
    assert!(read(&["no-such-file"]).unwrap_err().to_string().starts_with("cannot read"));
}

/// As in Redis: an invalid value is reported before an unsupported value.
#[test]
fn what_is_no_value_is_told_before_what_is_refused() {
    let (line, text) = refused(&["--logfile", "--my--file", "--loglevel", "--bla"]);
    assert_eq!(line, r#"loglevel "--bla""#);
    assert!(text.starts_with("argument(s) must be one of the following"), "{text}");
    // Of several refused values the first is reported.
    let (line, text) = refused(&["--logfile", "a", "--port", "1", "--daemonize", "yes"]);
    assert_eq!(line, r#"logfile "a""#);
    assert!(text.contains("messages go to standard error"), "{text}");
    let number = "wrong number of arguments";
    let none_of = "argument(s) must be one of the following";
    let cases: &[(&[&str], &str, &str)] = &[
        (&["--replicaof", "127.0.0.1", "abc"], r#"replicaof "127.0.0.1" "abc""#, "Invalid master"),
        (&["--replicaof", "--a", "65536"], r#"replicaof "--a" "65536""#, "Invalid master port"),
        (&["--replicaof", "--a", "--abc"], r#"replicaof "--a""#, number),
        (&["--replicaof", "a", "1", "2"], r#"replicaof "a" "1" "2""#, number),
        (&["--shutdown-on-sigint"], "shutdown-on-sigint", none_of),
    ];
    for (arguments, line, expected) in cases {
        let (shown, text) = refused(arguments);
        assert_eq!(shown, *line);
        assert!(text.starts_with(expected), "{arguments:?}: {text}");
    }
    for none in [&["--replicaof", "NO", "one"][..], &["--slaveof", ""], &["--replicaof no one"]] {
        assert_eq!(read(none).unwrap().text("replicaof"), "", "{none:?}");
    }
    let place = read(&["--replicaof", "a", "65535"]).unwrap().primary().unwrap();
    assert_eq!((place.to_string(), place.setting()), ("a:65535".into(), "a 65535".into()));
}

#[test]
fn lists_take_several_values_and_others_one() {
    let settings = read(&["--bind", "10.0.0.1", "::1", "--oom-score-adj-values", "1", "-2", "3"]);
    let settings = settings.unwrap();
    assert_eq!(settings.text("bind"), "10.0.0.1 ::1");
    assert_eq!(settings.text("oom-score-adj-values"), "1 -2 3");
    assert_eq!(refused(&["--dir", "my", "data"]).0, r#"dir "my" "data""#);
    assert_eq!(read(&["--dir", "my data"]).unwrap().dir(), Path::new("my data"));
}

/// At the limit, and beyond by 1.
#[test]
fn scores_have_their_bounds() {
    let shown = |values: &str| {
        let settings = read(&["--oom-score-adj-values", values])?;
        Ok::<_, ConfigError>(settings.text("oom-score-adj-values"))
    };
    assert_eq!(shown("-2000  2000 +7").as_deref(), Ok("-2000 2000 7"));
    for wrong in ["-2001 0 0", "0 2001 0", "0 0 x", "0 0 99999999999"] {
        let error = shown(wrong).unwrap_err().to_string();
        let said = "Invalid oom-score-adj-values, elements must be between -2000 and 2000";
        assert!(error.contains(said), "{wrong}: {error}");
    }
    for wrong in ["", "0 0", "0 0 0 0"] {
        let error = shown(wrong).unwrap_err().to_string();
        assert!(error.contains("wrong number of arguments: "), "{wrong}: {error}");
    }
    let set = |how: &str| read(&["--oom-score-adj", how]).map(|settings| settings.oom_score());
    let scores = ["no", "yes", "relative", "absolute"].map(|how| set(how).unwrap());
    assert_eq!(scores, [None, Some((0, true)), Some((0, true)), Some((0, false))]);
    assert!(set("maybe").is_err());
}

/// Microseconds for each key; a negative number stands for a fraction.
#[test]
fn the_delay_of_loading_follows_the_number_of_keys() {
    let delay = |value: &str, keys: u64| {
        let settings = read(&["--key-load-delay", value])?;
        Ok::<_, ConfigError>(settings.load_delay(keys).as_micros())
    };
    assert_eq!(delay("0", 1_000), Ok(0));
    assert_eq!(delay("50", 1_000), Ok(50_000));
    assert_eq!(delay("2147483647", u64::MAX), Ok(u128::from(u64::MAX)));
    assert_eq!(delay("-10", 1_000), Ok(100));
    assert_eq!(delay("-2147483648", 1_000), Ok(0));
    assert!(delay("2147483648", 1).is_err() && delay("-2147483649", 1).is_err());
    for (value, is_right) in [("1023", false), ("1024", true), ("2147483648", false)] {
        let set = read(&["--loading-process-events-interval-bytes", value]);
        assert_eq!(set.is_ok(), is_right, "{value}");
    }
}

/// An error of a file shows the line; passwords are not shown.
#[test]
fn lines_of_a_file_are_shown_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    let name = file.to_str().unwrap();
    let refusal = |text: &str| {
        std::fs::write(&file, text).unwrap();
        read(&[name]).unwrap_err().to_string()
    };
    let head = format!(
        "*** FATAL CONFIG FILE ERROR ***\nReading the configuration file, at line 2 of {name}\n>>> "
    );
    for (line, expected) in [
        ("  port  x ", "'port  x'\nargument couldn't be parsed into an integer: port must"),
        ("maxmemory 1 2", "'maxmemory 1 2'\nwrong number of arguments: maxmemory takes one"),
        ("port 'x", "'port 'x'\nUnbalanced quotes in configuration line: the quotes"),
        ("user", "'user'\nwrong number of arguments: user needs a value"),
        ("a \x1b[2J", "'a ?[2J'\nBad directive or wrong number of arguments: there is no"),
        ("requirepass s3cret word", "'requirepass (redacted)'\nwrong number of arguments"),
        ("\"Requirepass\" 's3cret", "'\"Requirepass\" (redacted)'\nUnbalanced quotes"),
        ("masterauth s3cret word", "'masterauth (redacted)'\nwrong number of arguments"),
        ("masteruser s3cret word", "'masteruser (redacted)'\nwrong number of arguments"),
        ("tls-client-key-file-pass s3cret 1", "'tls-client-key-file-pass (redacted)'\nwrong"),
        ("user a on >s3cret \"", "'user (redacted)'\nUnbalanced quotes"),
        ("'user' a '>s3cret", "''user' (redacted)'\nUnbalanced quotes"),
        ("requirepass\"s3cret", "'requirepass\" (redacted)'\nUnbalanced quotes"),
        ("requirepass", "'requirepass'\nwrong number of arguments: requirepass needs a value"),
    ] {
        let text = refusal(&format!("# comment\n{line}\n"));
        let rest = text.strip_prefix(&head).unwrap_or_else(|| panic!("{text}"));
        assert!(rest.starts_with(expected) && !rest.contains("s3cret"), "{text}");
    }
    let (line, text) = refused(&["--requirepass", "s3cret", "word"]);
    assert_eq!(line, "requirepass (redacted) (redacted)");
    assert!(!text.contains("s3cret"), "{text}");
    for flag in ["--requirepass 's3cret", "--user a on \">s3cret", "--masterauth\"s3cret"] {
        let text = read(&[flag]).unwrap_err().to_string();
        assert!(text.ends_with("the quotes do not match") && !text.contains("s3cret"), "{text}");
    }
}

/// A name may have quotes, like a value: the line is rewritten, and not kept beside a new line.
#[test]
fn lines_with_quoted_names_are_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    let lines = "# don't\n\"port\" 7000\n'save' 900 1\n\"user\" a on nopass\nhz 1\n";
    std::fs::write(&file, lines).unwrap();
    let name = file.to_str().unwrap();
    let settings = read(&[name]).unwrap();
    settings.set(&[("port".to_string(), "7001".to_string())]).unwrap();
    settings.rewrite(settings.users(), false).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let begin = "# don't\nport \"7001\"\nsave \"900 1\"\nhz \"1\"\nuser ";
    assert!(text.starts_with(begin), "{text}");
    let again = read(&[name]).unwrap();
    assert_eq!((again.port(), &again.text("save")[..]), (7_001, "900 1"));
}

/// Values of the environment have no line.
#[test]
fn variables_are_named() {
    let read = |name: &'static str, value: &'static str| {
        let environment = move |variable: &str| (variable == name).then(|| value.to_string());
        parse::from_arguments::<&str>(&[], &environment)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let error = read("HYADES_PORT", "x").unwrap_err();
    assert!(error.starts_with("HYADES_PORT: argument couldn't be parsed"), "{error}");
    let error = read("HYADES_DAEMONIZE", "yes").unwrap_err();
    assert!(error.starts_with("HYADES_DAEMONIZE: daemonize cannot be \"yes\""), "{error}");
}

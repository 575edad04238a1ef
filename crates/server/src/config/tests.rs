//! Accepted settings, and the errors of the rest.

use super::*;
use proptest::prelude::*;

fn read(arguments: &[&str]) -> Result<Settings, ConfigError> {
    parse::from_arguments(arguments, &|_| None)
}

fn refused(arguments: &[&str]) -> String {
    read(arguments).unwrap_err().to_string()
}

#[test]
fn defaults_and_flags() {
    let settings = read(&[]).unwrap();
    assert_eq!((settings.port(), settings.databases(), settings.streams()), (6379, 16, None));
    assert!(settings.is_protected());
    let settings = read(&["--PORT", "7000", "--bind", "10.0.0.1", "::1", "--save", "900 1"]);
    let settings = settings.unwrap();
    assert_eq!((settings.port(), settings.bind()), (7000, vec!["10.0.0.1".into(), "::1".into()]));
    assert!(settings.is_protected(), "there are no passwords, wherever it listens");
    assert!(!read(&["--protected-mode", "no"]).unwrap().is_protected());
}

#[test]
fn a_file_the_environment_and_flags_in_this_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    std::fs::write(&file, "# comment\n\nport 1\n  databases 3\nstreams \"2\"\n").unwrap();
    let path = file.to_str().unwrap();
    let environment = |name: &str| (name == "HYADES_DATABASES").then(|| "4".to_string());
    let read =
        |flags: &[&str]| parse::from_arguments(&[&[path], flags].concat(), &environment).unwrap();
    let settings = read(&["--port", "2"]);
    assert_eq!((settings.port(), settings.databases(), settings.streams()), (2, 4, Some(2)));
    // A change of a running server is written into the file, and the file reads back.
    settings.set(&[("maxclients".into(), "7".into())]).unwrap();
    settings.rewrite(&Users::default(), false).unwrap();
    let settings = read(&[]);
    assert_eq!((settings.port(), settings.max_clients(), settings.databases()), (2, 7, 4));
    std::fs::write(&file, "port 1\nnonsense 2\n").unwrap();
    assert!(refused(&[path]).contains("at line 2 of "));
}

/// Kubernetes sets `HYADES_PORT` in every container of a namespace with a service `hyades`.
#[test]
fn addresses_of_services_in_the_environment_are_no_settings() {
    let given = |name: &str, value: &str| {
        let (name, value) = (name.to_string(), value.to_string());
        let environment = move |variable: &str| (variable == name).then(|| value.clone());
        let settings = parse::from_arguments(&["--maxclients", "7"], &environment);
        settings.map(|settings| {
            (settings.port(), settings.number("tls-port"), settings.notices().to_vec())
        })
    };
    for value in ["tcp://10.43.0.7:6379", "udp://10.43.0.7:6379", "tcp://[fd00::7]:6379"] {
        for name in ["HYADES_PORT", "HYADES_TLS_PORT", "HYADES_METRICS_PORT"] {
            let (port, tls_port, notices) = given(name, value).unwrap();
            assert_eq!((port, tls_port, notices.len()), (6379, 0, 1), "{name}={value}");
            assert!(notices[0].starts_with(&format!("{name}={value} is ")), "{}", notices[0]);
        }
    }
    assert_eq!(given("HYADES_PORT", "7000").unwrap(), (7000, 0, vec![]));
    // No other wrong value is passed over.
    let refused = |name, value| given(name, value).unwrap_err().to_string();
    for value in ["http://10.43.0.7", "10.43.0.7:6379", "65536", ""] {
        assert!(refused("HYADES_PORT", value).starts_with("HYADES_PORT: "), "{value}");
    }
    assert!(refused("HYADES_MAXCLIENTS", "tcp://10.43.0.7:6379").starts_with("HYADES_MAXCLIENTS"));
    let port = |value: &str| parse::port(&|_| Some(value.to_string()));
    assert_eq!((port("tcp://10.43.0.7:6379"), port("7000")), (Ok(6379), Ok(7000)));
    assert!(port("x").is_err());
    assert_eq!(parse::port(&|_| None), Ok(6379));
}

#[test]
fn a_change_is_whole_or_not_at_all() {
    let settings = read(&[]).unwrap();
    let changes = [("maxclients", "5"), ("streams", "7")].map(|(n, v)| (n.into(), v.into()));
    let error = settings.set(&changes).unwrap_err();
    let text = "(possibly related to argument 'streams') - can't set immutable config";
    assert_eq!(error.to_string(), text);
    assert_eq!(settings.max_clients(), 10_000);
    settings.set(&changes[..1]).unwrap();
    assert_eq!(settings.max_clients(), 5);
    assert_eq!(settings.matching(&[b"MAXCL*"]), [("maxclients", "5".to_string())]);
}

#[test]
fn names_are_there_once_and_defaults_are_possible() {
    for (at, setting) in SETTINGS.iter().enumerate() {
        assert_eq!(place(setting.name), Some(at), "{}", setting.name);
        assert_eq!(setting.value.read(setting.name, setting.default).unwrap(), setting.default);
    }
    assert_eq!(
        [memory("1k"), memory("1kb"), memory("2GB")],
        [Some(1000), Some(1024), Some(2 << 30)]
    );
    assert_eq!([memory("x"), memory("1x"), memory("99999999999999999999")], [None; 3]);
}

/// A `redis.conf` of an older version has the second names.
#[test]
fn second_names_are_the_same_settings() {
    for (second, first) in table::SECOND_NAMES {
        let setting = |name| &SETTINGS[place(name).unwrap()];
        assert_eq!(setting(second).default, setting(first).default, "{second}");
        assert_eq!(first_name(second), *first);
        assert!(!table::SECOND_NAMES.iter().any(|(name, _)| name == first), "{first}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    std::fs::write(&file, "hash-max-ziplist-entries 20\nhash-max-listpack-entries 21\n").unwrap();
    let settings = read(&[file.to_str().unwrap()]).unwrap();
    let both = |value: &str| {
        let names = ["hash-max-listpack-entries", "hash-max-ziplist-entries"];
        names.map(|name| (name, value.to_string())).to_vec()
    };
    assert_eq!(settings.matching(&[b"hash-max-*-entries"]), both("21"));
    assert_eq!(settings.packed().hash, 21);
    settings.set(&[("HASH-max-ziplist-entries".into(), "100".into())]).unwrap();
    assert_eq!(settings.matching(&[b"hash-max-*-entries"]), both("100"));
    settings.rewrite(&Users::default(), false).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, "hash-max-listpack-entries \"100\"\n");
    assert_eq!(read(&["--slaveof", "a 1"]).unwrap().text("replicaof"), "a 1");
}

/// All settings in CONFIG GET can be set to their values, and a file with all settings can be read.
#[test]
fn what_is_there_can_be_set_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    std::fs::write(&file, "").unwrap();
    let settings = read(&[file.to_str().unwrap(), "--streams", "2"]).unwrap();
    let all = settings.matching(&[b"*"]);
    for (name, value) in &all {
        let set = settings.set(&[((*name).to_string(), value.clone())]);
        assert!(set.is_ok(), "{name}: {set:?}");
    }
    let error = |name: &str, value: &str| {
        settings.set(&[(name.to_string(), value.to_string())]).unwrap_err().to_string()
    };
    assert!(error("streams", "3").ends_with("can't set immutable config"));
    assert!(error("daemonize", "yes").contains("can't set immutable config (run it under"));
    assert!(error("maxmemory-policy", "allkeys-lru").contains("cannot be"));
    settings.rewrite(&Users::default(), true).unwrap();
    assert_eq!(read(&[file.to_str().unwrap()]).unwrap().matching(&[b"*"]), all);
}

/// `save` without times is how a `redis.conf` turns saving off.
#[test]
fn times_of_saving_may_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    std::fs::write(&file, "save 900 1\nsave\nport 1\n").unwrap();
    let settings = read(&[file.to_str().unwrap()]).unwrap();
    assert_eq!((settings.text("save"), settings.port()), (String::new(), 1));
    let settings = read(&["--save", "--port", "2"]).unwrap();
    assert_eq!((settings.text("save"), settings.port()), (String::new(), 2));
    std::fs::write(&file, "port\n").unwrap();
    assert!(refused(&[file.to_str().unwrap()]).ends_with("port needs a value"));
}

#[test]
fn a_size_may_be_a_share_of_the_memory() {
    let shown = |value: &str| {
        let settings = read(&["--maxmemory-clients", value])?;
        Ok::<_, ConfigError>(settings.text("maxmemory-clients"))
    };
    assert_eq!(
        [shown("0%"), shown("100%"), shown("1kb")].map(Result::unwrap),
        ["0%", "100%", "1024"]
    );
    let text = "percentage argument must be less or equal to 100";
    assert!(shown("101%").unwrap_err().to_string().ends_with(&format!("\n{text}")));
    assert!(shown("x%").is_err() && shown("%").is_err() && shown("-1%").is_err());
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused(text: Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.conf");
        std::fs::write(&file, text).unwrap();
        let _ = read(&[file.to_str().unwrap()]);
    }
}

/// The file may be a link into a directory of configurations, and closed to other users.
#[test]
fn a_rewritten_file_keeps_its_place_and_its_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("real.conf"), dir.path().join("link.conf"));
    std::fs::write(&file, "port 0\nmaxclients 7\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&file, &link).unwrap();
    let settings = Settings::from_arguments(&[link.to_str().unwrap()]).unwrap();
    settings.set(&[("maxclients".to_string(), "9".to_string())]).unwrap();
    settings.rewrite(&Users::default(), false).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "port \"0\"\nmaxclients \"9\"\n");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
}

/// A process was killed while writing the file, and the present process has the same number.
#[test]
fn what_is_left_half_written_does_not_keep_a_file_from_being_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    std::fs::write(&file, "port 0\n").unwrap();
    let left = dir.path().join(format!("a.conf.{}.rewriting", std::process::id()));
    std::fs::write(left, "po").unwrap();
    replace(&file, b"port 1\n").unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "port 1\n");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
}

/// A setting unchanged by a refused CONFIG SET is not written by CONFIG REWRITE either.
#[test]
fn a_refused_change_leaves_nothing_behind() {
    let settings = Settings::default();
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    assert!(settings.set(&[pair("maxclients", "5"), pair("streams", "1")]).is_err());
    assert_eq!(settings.max_clients(), 10_000);
    assert!(settings.given.read().unwrap().is_empty());
}

/// Users come from lines of the file, from flags, or from a separate file.
#[test]
fn users_of_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let (file, rules) = (dir.path().join("a.conf"), dir.path().join("users.acl"));
    std::fs::write(&file, "user a on >x \"~k k\" (+get\nport 0\n").unwrap();
    assert!(refused(&[file.to_str().unwrap()]).contains("is not closed"));
    std::fs::write(&file, "user a on >x \"~k\\xff\" (+get ~x)\nport 0\n").unwrap();
    let settings = read(&[file.to_str().unwrap(), "--requirepass", "p"]).unwrap();
    assert!(settings.users().log_in(b"a", b"x").is_some());
    assert!(settings.users().log_in(b"default", b"p").is_some());
    assert!(settings.users().log_in(b"default", b"q").is_none());
    settings.rewrite(settings.users(), false).unwrap();
    let again = read(&[file.to_str().unwrap()]).unwrap();
    let lines =
        |settings: &Settings| settings.users().iter().map(|user| user.line()).collect::<Vec<_>>();
    assert_eq!(lines(&again), lines(&settings));

    assert!(refused(&["--user", "a", "--user", "a"]).starts_with("Duplicate user 'a'"));
    assert!(refused(&["--user", "a", "+nothing"]).contains("Unknown command"));
    std::fs::write(&rules, "user a on >x\n").unwrap();
    let data = dir.path().to_str().unwrap();
    let settings = read(&["--dir", data, "--aclfile", "users.acl"]).unwrap();
    assert!(settings.users().log_in(b"a", b"x").is_some());
    assert!(refused(&["--aclfile", "no-such-file"]).starts_with("cannot read aclfile"));
    let both = refused(&["--dir", data, "--aclfile", "users.acl", "--user", "b"]);
    assert!(both.contains("not by both"), "{both}");
}

#[test]
fn a_core_is_left_to_the_log() {
    let loops = [(1, 1), (2, 1), (3, 2), (4, 3), (7, 6), (8, 7), (16, 14), (64, 56)];
    assert!(loops.iter().all(|(cores, loops)| loops_for(*cores) == *loops));
}

/// The shipped example: each commented line is a setting with a valid value, and the unchanged file
/// changes nothing.
#[test]
fn the_example_file_is_right() {
    let text = include_str!("../../../../dist/hyades.conf");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hyades.conf");
    let read_text = |text: &str| {
        std::fs::write(&file, text).unwrap();
        read(&[file.to_str().unwrap()])
    };
    assert_eq!(read_text(text).unwrap().matching(&[b"*"]), Settings::default().matching(&[b"*"]));
    let mut names = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix('#')) {
        if !line.is_empty() && !line.starts_with(' ') {
            assert!(read_text(&format!("{line}\n")).is_ok(), "{line}");
            names.push(line.split(' ').next().unwrap());
        }
    }
    assert!(names.contains(&"port") && names.contains(&"requirepass"), "{names:?}");
}

/// Several lines of `save` all count, up to a line without times; CONFIG SET replaces all at once.
#[test]
fn times_of_saving_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    let usual = "3600 1 300 100 60 10000";
    let shown = |text: &str, flags: &[&str]| {
        std::fs::write(&file, text).unwrap();
        read(&[&[file.to_str().unwrap()], flags].concat()).map(|settings| settings.text("save"))
    };
    let cases: &[(&str, &[&str], &str)] = &[
        ("", &[], usual),
        ("save 900 1\nsave 300 10\n", &[], "900 1 300 10"),
        ("save 900 1 300 10\n", &[], "900 1 300 10"),
        ("save \"900  1\"\n", &["--save", "100", "100"], "900 1 100 100"),
        ("save 900 1\nsave \"\"\nsave 60 7\n", &[], "60 7"),
        ("save 900 1\n", &["--save", ""], ""),
        ("save 900 1\n", &["--save"], ""),
        ("save 900 1\n", &["--save", "--port", "7"], ""),
        ("save 1 0\n", &[], "1 0"),
    ];
    for (text, flags, expected) in cases {
        assert_eq!(shown(text, flags).as_deref(), Ok(*expected), "{text} {flags:?}");
    }
    for wrong in ["900", "0 1", "900 x", "-1 1", "900 1 60", "900 -1", "4294967296 1"] {
        let error = shown(&format!("save {wrong}\n"), &[]).unwrap_err().to_string();
        assert!(error.contains("save must be pairs of seconds"), "{wrong}: {error}");
    }
    let settings = read(&[file.to_str().unwrap(), "--save", "900 1"]).unwrap_err();
    assert!(settings.to_string().contains("line 1"));
    std::fs::write(&file, "save 900 1\nport 1\nsave 300 10\n").unwrap();
    let settings = read(&[file.to_str().unwrap()]).unwrap();
    let set = |value: &str| settings.set(&[("save".to_string(), value.to_string())]);
    assert!(set("60").is_err() && settings.text("save") == "900 1 300 10");
    set("60 7").unwrap();
    assert_eq!(settings.text("save"), "60 7");
    settings.rewrite(&Users::default(), false).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, "save \"60 7\"\nport \"1\"\n");
    set("").unwrap();
    settings.rewrite(&Users::default(), false).unwrap();
    assert_eq!(read(&[file.to_str().unwrap()]).unwrap().text("save"), "");
}

#[test]
fn words_of_shutting_down_are_shown_in_one_order() {
    let shown = |words: &str| {
        let settings = read(&["--shutdown-on-sigterm", words])?;
        Ok::<_, ConfigError>(settings.text("shutdown-on-sigterm"))
    };
    for (words, expected) in [
        ("default", "default"),
        ("save", "save"),
        ("nosave force now", "nosave now force"),
        ("NOW now Save", "save now"),
    ] {
        assert_eq!(shown(words).as_deref(), Ok(expected));
    }
    for wrong in ["", "never", "save nosave", "default now"] {
        assert!(shown(wrong).is_err(), "{wrong}");
    }
}

/// As on the command line of Redis.
#[test]
fn a_flag_may_hold_its_value_and_a_value_may_look_like_a_flag() {
    let title = "proc-title-template";
    let read = |flags: &[&str]| {
        let settings = read(flags)?;
        Ok::<_, ConfigError>((settings.text(title), settings.text("loglevel"), settings.port()))
    };
    let shown = |title: &str, level: &str, port: u16| {
        Ok::<_, ConfigError>((title.to_string(), level.to_string(), port))
    };
    for flags in [
        &["--proc-title-template", "--my--title", "--loglevel", "verbose", "--port", "7"][..],
        &["--proc-title-template --my--title", "--loglevel verbose", "--port 7"],
        &["--proc-title-template '--my--title'", "--port \"7\"", "--loglevel", "verbose"],
        &["--port", "7", "--proc-title-template", "--my--title", "--loglevel verbose"],
    ] {
        assert_eq!(read(flags), shown("--my--title", "verbose", 7), "{flags:?}");
    }
    let default = Settings::default().text(title);
    assert_eq!(read(&["--save", "--port", "7"]), shown(&default, "notice", 7));
    let error = |flags: &[&str]| read(flags).unwrap_err().to_string();
    let taken = error(&["--port", "--loglevel", "verbose"]);
    assert!(
        taken.contains("port \"--loglevel\" \"verbose\"'\nwrong number of arguments"),
        "{taken}"
    );
    assert!(error(&["--port 7", "--port"]).ends_with("port needs a value"));
    assert_eq!(error(&["--"]), "\"--\" is no setting: write --name value");
    assert_eq!(error(&["--port '7"]), "\"--port '7\": the quotes do not match");
}

/// Redis has settings for its own tests, which are shown by exact name only.
#[test]
fn hidden_settings_are_shown_by_their_names_alone() {
    let settings = Settings::default();
    let names = |patterns: &[&[u8]]| -> Vec<&str> {
        settings.matching(patterns).iter().map(|(name, _)| *name).collect()
    };
    assert_eq!(names(&[b"KEY-load-delay"]), ["key-load-delay"]);
    let interval = "loading-process-events-interval-bytes";
    assert_eq!(names(&[interval.as_bytes()]), [interval]);
    assert!(names(&[b"key-load-*"]).is_empty() && names(&[b"*delay?"]).is_empty());
    assert!(!names(&[b"*"]).contains(&"rdb-key-save-delay"));
    assert!(table::HIDDEN.iter().all(|name| place(name).is_some()));
}

/// In a file, and as a flag.
#[test]
fn commands_are_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    let file_name = file.to_str().unwrap();
    let text = "rename-command FLUSHALL \"\"\nRename-Command flushdb 'bad ger'\nport 1\n";
    std::fs::write(&file, text).unwrap();
    let settings = read(&[file_name, "--rename-command", "KEYS", "", "--port", "2"]).unwrap();
    assert_eq!(settings.port(), 2);
    for name in ["flushall", "FLUSHDB", "keys"] {
        assert_eq!(settings.renamed.find(name.as_bytes()), Some(None), "{name}");
    }
    assert!(settings.renamed.find(b"bad ger").flatten().is_some());
    // The lines stay when the file is written.
    settings.set(&[("maxclients".to_string(), "7".to_string())]).unwrap();
    settings.rewrite(&Users::default(), false).unwrap();
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.starts_with(text.strip_suffix("port 1\n").unwrap()), "{written}");
    for (line, expected) in [
        ("rename-command", "rename-command needs the name of a command"),
        ("rename-command keys", "rename-command needs the name of a command"),
        ("rename-command keys a b", "rename-command needs the name of a command"),
        ("rename-command none a", "rename-command: there is no command \"none\""),
        (r#"rename-command keys "\xff""#, "a name is not UTF-8"),
        ("rename-command keys get", "rename-command: there is a command \"get\" already"),
    ] {
        std::fs::write(&file, format!("{line}\n")).unwrap();
        let error = refused(&[file_name]);
        assert!(error.contains("line 1 of") && error.contains(expected), "{error}");
    }
}

/// A `redis.conf` of 7.2 has the settings in the file; its comments name the rest.
#[test]
fn settings_of_redis_7_2_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    let text = "set-max-listpack-entries 128\nset-max-listpack-value 64\nlocale-collate C\n\
                cluster-announce-human-nodename \"\"\nactivedefrag no\ntcp-backlog 511\n";
    std::fs::write(&file, text).unwrap();
    let settings = read(&[file.to_str().unwrap()]).unwrap();
    let shown = settings.matching(&[b"set-max-listpack-*", b"locale-*", b"watchdog-period"]);
    let expected = [
        ("locale-collate", "C"),
        ("set-max-listpack-entries", "128"),
        ("set-max-listpack-value", "64"),
        ("watchdog-period", "0"),
    ];
    assert_eq!(shown, expected.map(|(name, value)| (name, value.to_string())));
}

/// A user would rely on the promises of the settings.
#[test]
fn what_would_have_no_effect_is_refused_with_a_reason() {
    for (name, value, why) in [
        ("min-replicas-to-write", "1", "there are no replicas"),
        ("min-slaves-to-write", "2", "there are no replicas"),
        ("activedefrag", "yes", "the allocator does not move"),
        ("syslog-enabled", "yes", "standard error"),
        ("socket-mark-id", "1", "sockets are not marked"),
        ("server_cpulist", "0-1", "CPUAffinity"),
    ] {
        let error = refused(&[format!("--{name}").as_str(), value]);
        assert!(error.contains(&format!("\n{name} cannot be \"{value}\"")), "{error}");
        assert!(error.contains(why), "{error}");
        let set = Settings::default().set(&[(name.to_string(), value.to_string())]);
        let error = set.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(read(&["--min-replicas-to-write", "0", "--activedefrag", "no"]).is_ok());
}

/// As in Redis 7.0. The present values may be set again.
#[test]
fn settings_of_the_start_are_immutable_later() {
    for (name, value) in [
        ("io-threads", "4"),
        ("io-threads-do-reads", "yes"),
        ("set-proc-title", "no"),
        ("dbfilename", "x.rdb"),
        ("appendfilename", "x.aof"),
        ("pidfile", "/tmp/x"),
        ("tcp-backlog", "512"),
        ("metrics-bind", "*"),
        ("syslog-enabled", "yes"),
    ] {
        let settings = Settings::default();
        let set = settings.set(&[(name.to_string(), value.to_string())]);
        let error = set.unwrap_err().to_string();
        assert!(error.contains("can't set immutable config"), "{error}");
        assert!(settings.set(&[(name.to_string(), settings.text(name))]).is_ok(), "{name}");
    }
}

#[test]
fn a_backlog_and_a_title_have_their_bounds() {
    for (value, is_right) in [("0", true), ("2147483647", true), ("2147483648", false)] {
        assert_eq!(read(&["--tcp-backlog", value]).is_ok(), is_right, "{value}");
    }
    assert!(read(&["--tcp-backlog", "-1"]).is_err());
    let title = |text: &str| read(&["--proc-title-template", text]).is_ok();
    assert!(title("{title} {port}") && title("a {{b") && title("}"));
    assert!(!title("") && !title("{x}") && !title("{title") && !title("{"));
}

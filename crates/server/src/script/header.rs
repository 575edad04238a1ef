//! The first line of a script: `#!lua flags=no-writes`.

/// The flags declared by a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The script only reads.
    pub no_writes: bool,
    /// The script runs when no memory is left, and its commands do.
    pub allow_oom: bool,
    /// An error of the script undoes all effects of the script.
    pub rollback: bool,
    /// The script runs on a replica without its primary: declared, but there are no such replicas.
    pub allow_stale: bool,
    /// The script does not run in a cluster.
    pub no_cluster: bool,
    /// The script uses keys of several slots: declared, as every script may use all keys.
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    /// Sets a flag by its name; false if there is no such flag.
    pub fn set(&mut self, name: &[u8]) -> bool {
        match name {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"rollback" => self.rollback = true,
            b"allow-stale" => self.allow_stale = true,
            b"no-cluster" => self.no_cluster = true,
            b"allow-cross-slot-keys" => self.allow_cross_slot_keys = true,
            _ => return false,
        }
        true
    }
}

impl Flags {
    /// The flags as bits, in the form stored with functions.
    pub fn bits(self) -> u8 {
        let all = [
            self.no_writes,
            self.allow_oom,
            self.rollback,
            self.allow_stale,
            self.no_cluster,
            self.allow_cross_slot_keys,
        ];
        all.iter().rev().fold(0, |bits, is_set| bits << 1 | u8::from(*is_set))
    }

    /// The flags of bits.
    pub fn of_bits(bits: u8) -> Flags {
        let is_set = |bit: u8| bits >> bit & 1 == 1;
        Flags {
            no_writes: is_set(0),
            allow_oom: is_set(1),
            rollback: is_set(2),
            allow_stale: is_set(3),
            no_cluster: is_set(4),
            allow_cross_slot_keys: is_set(5),
        }
    }

    /// The names of the flags.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot_keys, "allow-cross-slot-keys"),
            (self.rollback, "rollback"),
        ];
        names.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name)
    }
}

/// A script's first line, if the line begins with `#!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The flags in the line.
    pub flags: Flags,
    /// The name of the library, if the line has one.
    pub name: Option<&'a [u8]>,
    /// The rest of the script, with the end of the line: lines keep their numbers.
    pub rest: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads the line of a script of EVAL; `None` if there is none.
    ///
    /// # Errors
    /// The fault of the line.
    pub fn of_script(body: &'a [u8]) -> Result<Option<Header<'a>>, String> {
        let Some(line) = body.strip_prefix(b"#!") else { return Ok(None) };
        let end = line.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or("ERR Invalid script shebang")?;
        let mut words = words(&line[..end]);
        let engine = words.next().unwrap_or_default();
        if engine != b"lua" {
            let given = String::from_utf8_lossy(engine);
            return Err(format!("ERR Unexpected engine in script shebang: #!{given}"));
        }
        let mut flags = Flags::default();
        for word in words {
            let Some(list) = word.strip_prefix(b"flags=") else {
                let given = String::from_utf8_lossy(word);
                return Err(format!("ERR Unknown lua shebang option: {given}"));
            };
            for name in list.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
                if !flags.set(name) {
                    let given = String::from_utf8_lossy(name);
                    return Err(format!("ERR Unexpected flag in script shebang: {given}"));
                }
            }
        }
        Ok(Some(Header { flags, name: None, rest: &line[end..] }))
    }
}

/// Whether the first line of a script of EVAL says that the script only reads.
pub fn only_reads(body: &[u8]) -> bool {
    matches!(Header::of_script(body), Ok(Some(header)) if header.flags.no_writes)
}

/// Whether a name of a library or a function is valid: letters, digits and underscores.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// The error of an invalid name.
pub const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and \
                            must be at least one character long";

impl<'a> Header<'a> {
    /// Reads the line of a library: `#!lua name=mylib`.
    ///
    /// # Errors
    /// The fault of the line.
    pub fn of_library(code: &'a [u8]) -> Result<Header<'a>, String> {
        let line = code.strip_prefix(b"#!").ok_or("ERR Missing library metadata")?;
        let end = line.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or("ERR Invalid library metadata")?;
        let blank = line[..end].iter().position(u8::is_ascii_whitespace).unwrap_or(end);
        let (engine, words) = (&line[..blank], words(&line[blank..end]));
        if !engine.eq_ignore_ascii_case(b"lua") {
            let given = String::from_utf8_lossy(engine);
            return Err(format!("ERR Engine '{given}' not found"));
        }
        let mut name = None;
        for word in words {
            let Some(given) = word.strip_prefix(b"name=") else {
                let given = String::from_utf8_lossy(word);
                return Err(format!("ERR Invalid metadata value given: {given}"));
            };
            let quoted = given.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            if name.replace(quoted.unwrap_or(given)).is_some() {
                let text = "ERR Invalid metadata value, name argument was given multiple times";
                return Err(text.into());
            }
        }
        let name = name.ok_or("ERR Library name was not given")?;
        if !is_name(name) {
            return Err(format!("ERR {BAD_NAME}"));
        }
        Ok(Header { flags: Flags::default(), name: Some(name), rest: &line[end..] })
    }
}

/// The words of a line, between blanks.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_kept_and_told() {
        let all = "no-writes allow-oom allow-stale no-cluster allow-cross-slot-keys rollback";
        for name in all.split(' ') {
            let mut flags = Flags::default();
            assert!(flags.set(name.as_bytes()), "{name}");
            assert_eq!(Flags::of_bits(flags.bits()), flags, "{name}");
            assert_eq!(flags.names().collect::<Vec<_>>(), [name]);
        }
        assert!(!Flags::default().set(b"none"));
    }

    #[test]
    fn the_first_line_has_flags() {
        let header = |text: &'static str| Header::of_script(text.as_bytes());
        assert_eq!(header("return 1"), Ok(None));
        let found = header("#!lua flags=no-writes,rollback  \nreturn 1").unwrap().unwrap();
        assert_eq!(found.flags, Flags { no_writes: true, rollback: true, ..Flags::default() });
        assert_eq!(found.rest, b"\nreturn 1");
        assert_eq!(header("#!lua\n").unwrap().unwrap().flags, Flags::default());
        let name = |text: &'static str| Header::of_library(text.as_bytes()).map(|found| found.name);
        assert_eq!(name("#!lua name=\"a_1\"\n"), Ok(Some(&b"a_1"[..])));
        assert_eq!(name("#! name=a\n"), Err("ERR Engine '' not found".to_string()));
        for (text, error) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#!lua name=x\n", "ERR Unknown lua shebang option: name=x"),
            ("#!lua flags=x\n", "ERR Unexpected flag in script shebang: x"),
        ] {
            assert_eq!(header(text), Err(error.to_string()));
        }
    }
}

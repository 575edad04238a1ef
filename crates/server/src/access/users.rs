//! Users: their passwords, and their rules.

use super::rules::{Denied, RuleError, Selector, has_blanks};
use crate::catalogue::{self, NO_AUTH, NamedChannels, RequestKeys, names};
use crate::resp::is;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The user of a client before a login.
pub const DEFAULT: &str = "default";

type Hash = [u8; 32];

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// The name of the user.
    pub name: Arc<str>,
    /// The number of the user; a new user with the name of a removed user gets another number.
    pub id: u64,
    is_on: bool,
    /// Any password will do.
    needs_none: bool,
    skips_sanitizing: bool,
    passwords: Vec<Hash>,
    /// The user's own rules first. One set has to allow a request as a whole.
    selectors: Vec<Selector>,
}

/// Compares two hashes, in a time that does not depend on the place of a difference.
fn are_equal(a: &Hash, b: &Hash) -> bool {
    let differing = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differing) == 0
}

fn read_hash(digits: &[u8]) -> Option<Hash> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut hash = [0; 32];
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl User {
    /// A user without rights; all channels may be allowed.
    pub fn new(name: &str, all_channels: bool) -> User {
        User {
            name: name.into(),
            id: fastrand::u64(..),
            is_on: false,
            needs_none: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            selectors: vec![Selector::new(all_channels)],
        }
    }

    /// The default user of a server without rules: allowed to do all, without a password.
    pub fn all_powerful() -> User {
        let mut user = User::new(DEFAULT, true);
        for rule in [&b"on"[..], b"nopass", b"~*", b"+@all"] {
            user.add(rule, true).expect("it is a rule");
        }
        user
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// The rule is not possible; nothing has changed.
    pub fn add(&mut self, rule: &[u8], channels_by_default: bool) -> Result<(), RuleError> {
        let lower = rule.to_ascii_lowercase();
        match (&lower[..], rule) {
            (b"", _) => {}
            (b"on", _) => self.is_on = true,
            (b"off", _) => self.is_on = false,
            (b"skip-sanitize-payload", _) => self.skips_sanitizing = true,
            (b"sanitize-payload", _) => self.skips_sanitizing = false,
            (b"nopass", _) => (self.needs_none, self.passwords) = (true, Vec::new()),
            (b"resetpass", _) => (self.needs_none, self.passwords) = (false, Vec::new()),
            (b"clearselectors", _) => self.selectors.truncate(1),
            (b"reset", _) => {
                *self = User { id: self.id, ..User::new(&self.name, channels_by_default) };
            }
            (_, [b'>', password @ ..]) => self.add_password(Sha256::digest(password).into()),
            (_, [b'#', hash @ ..]) => {
                self.add_password(read_hash(hash).ok_or(RuleError::BadHash)?);
            }
            (_, [b'<', password @ ..]) => self.remove_password(Sha256::digest(password).into())?,
            (_, [b'!', hash @ ..]) => {
                self.remove_password(read_hash(hash).ok_or(RuleError::BadHash)?)?;
            }
            (_, [b'(', rules @ .., b')']) => {
                let mut selector = Selector::new(channels_by_default);
                let words = rules.split(|byte| byte.is_ascii_whitespace());
                for word in words.filter(|word| !word.is_empty()) {
                    selector.add(word)?;
                }
                self.selectors.push(selector);
            }
            _ => self.selectors[0].add(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        self.needs_none = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: Hash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Whether the user may log in with a password.
    fn accepts(&self, hash: &Hash) -> bool {
        let fits =
            self.passwords.iter().fold(false, |fits, password| fits | are_equal(password, hash));
        self.is_on && (self.needs_none || fits)
    }

    /// Whether clients become this user, as the default user, without a password.
    pub fn is_open(&self) -> bool {
        self.is_on && self.needs_none
    }

    /// Whether any password will do.
    pub fn needs_no_password(&self) -> bool {
        self.needs_none
    }

    /// Whether nothing is refused.
    pub fn allows_all(&self) -> bool {
        self.selectors[0].allows_all()
    }

    /// Checks whether a request is allowed. Of the sets of rules that refuse, the refusal of the
    /// most permissive set counts.
    ///
    /// # Errors
    /// The request is refused, with the reason.
    pub fn check(&self, args: &[&[u8]]) -> Result<(), Denied> {
        let at = names::of_request(args);
        let command = catalogue::command(args[0]);
        let needs = match command {
            Some(command) if command.takes(args.len()) => RequestKeys::of(command, args),
            _ => RequestKeys::default(),
        };
        let is_free = command.is_some_and(|command| command.has(NO_AUTH));
        let mut denied = None;
        for selector in &self.selectors {
            match selector.check((at, is_free), args, &needs) {
                Ok(()) => return Ok(()),
                Err(why) => denied = denied.max(Some(why)),
            }
        }
        Err(denied.expect("a user has rules"))
    }

    /// The refused option of SORT: BY and GET read any keys.
    pub fn refused_sort_option(&self, args: &[&[u8]]) -> Option<&'static str> {
        let may_read = |selector: &Selector| {
            let at = names::of_request(args);
            let needs = RequestKeys::of(catalogue::command(args[0])?, args);
            (selector.check((at, false), args, &needs).is_ok() && selector.reads_all_keys())
                .then_some(())
        };
        let mut rest = args.get(2..).unwrap_or_default();
        let option = loop {
            rest = match rest {
                [word, pattern, ..] if is(word, "BY") && pattern.contains(&b'*') => break "BY",
                [word, _, ..] if is(word, "GET") => break "GET",
                [word, _, after @ ..] if is(word, "BY") || is(word, "STORE") => after,
                [word, _, _, after @ ..] if is(word, "LIMIT") => after,
                [_, after @ ..] => after,
                [] => return None,
            };
        };
        let may = self.selectors.iter().any(|selector| may_read(selector).is_some());
        (!may).then_some(option)
    }

    /// Whether the user may keep a subscription to a channel.
    pub fn allows_channel(&self, name: &[u8], channels: NamedChannels) -> bool {
        self.selectors.iter().any(|selector| selector.allows_channel(name, channels))
    }

    /// The flags of the user, as set.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_none.then_some("nopass"));
        flags.extend(self.skips_sanitizing.then_some("skip-sanitize-payload"));
        flags
    }

    /// The hashes of the user's passwords.
    pub fn passwords(&self) -> impl Iterator<Item = String> {
        self.passwords.iter().map(|hash| hexadecimal(hash))
    }

    /// The user's own rules, then the rules in parentheses.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// The user's flags, passwords and rules, as rules to be read.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> =
            self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.passwords().map(|hash| format!("#{hash}").into_bytes()));
        parts.push(self.selectors[0].describe());
        let more = self.selectors[1..].iter();
        parts.extend(more.map(|selector| [b"(", &selector.describe()[..], b")"].concat()));
        parts.join(&b' ')
    }

    /// The description, as a line of a file.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", self.name.as_bytes(), b" ", &self.describe()].concat()
    }
}

/// Joins rules in parentheses, which may stand in several words, into a word each.
///
/// # Errors
/// The word at which an unclosed parenthesis is opened.
pub fn merged(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let (mut merged, mut open): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    let mut begin = &b""[..];
    for word in words {
        let ends = word.last() == Some(&b')');
        match &mut open {
            Some(selector) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
            }
            None if word.first() == Some(&b'(') && !ends => {
                (open, begin) = (Some(word.to_vec()), word);
                continue;
            }
            None => merged.push(word.to_vec()),
        }
        if ends {
            merged.extend(open.take());
        }
    }
    match open {
        Some(_) => Err(begin.to_vec()),
        None => Ok(merged),
    }
}

/// All users by name. There is always the default user.
#[derive(Clone, Debug)]
pub struct Users {
    all: BTreeMap<Arc<str>, Arc<User>>,
    /// Whether new users may use all channels.
    channels_by_default: bool,
}

impl Default for Users {
    fn default() -> Users {
        let mut users = Users { all: BTreeMap::new(), channels_by_default: false };
        users.put(User::all_powerful());
        users
    }
}

/// The user name, if the bytes are a possible name.
pub fn user_name(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok().filter(|_| !has_blanks(name))
}

impl Users {
    /// Sets whether new users may use all channels.
    pub fn set_channels_by_default(&mut self, to: bool) {
        self.channels_by_default = to;
    }

    /// Whether something can be refused to some client.
    pub fn is_restricted(&self) -> bool {
        let default = self.default_user();
        self.all.len() > 1 || !default.is_open() || !default.allows_all()
    }

    /// A user.
    pub fn find(&self, name: &str) -> Option<&Arc<User>> {
        self.all.get(name)
    }

    /// The default user.
    pub fn default_user(&self) -> &Arc<User> {
        self.find(DEFAULT).expect("there is always the default user")
    }

    /// All users.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.all.values()
    }

    fn put(&mut self, user: User) {
        self.all.insert(user.name.clone(), Arc::new(user));
    }

    /// Removes a user, if present.
    pub fn remove(&mut self, name: &str) -> bool {
        assert!(name != DEFAULT, "there is always the default user");
        self.all.remove(name).is_some()
    }

    /// Changes or adds a user: by all rules, or, after an error, by none.
    ///
    /// # Errors
    /// The error text of ACL SETUSER.
    pub fn change(&mut self, name: &str, rules: &[&[u8]]) -> Result<(), String> {
        let rules = merged(rules).map_err(|at| {
            let at = String::from_utf8_lossy(&at).into_owned();
            format!("Unmatched parenthesis in acl selector starting at '{at}'.")
        })?;
        let user = match self.find(name) {
            Some(user) => (**user).clone(),
            None => User::new(name, self.channels_by_default),
        };
        let user = self.with(user, &rules).map_err(|(rule, error)| {
            // A password is not repeated in a text for the log.
            let rule = match rule.first() {
                Some(b'>' | b'<') => "(password)".into(),
                _ => String::from_utf8_lossy(&rule).into_owned(),
            };
            format!("Error in ACL SETUSER modifier '{rule}': {error}")
        })?;
        self.put(user);
        Ok(())
    }

    fn with(&self, mut user: User, rules: &[Vec<u8>]) -> Result<User, (Vec<u8>, RuleError)> {
        for rule in rules {
            let added = user.add(rule, self.channels_by_default);
            added.map_err(|error| (rule.clone(), error))?;
        }
        Ok(user)
    }

    /// Sets the only password of the default user; an empty password: none is needed.
    pub fn set_default_password(&mut self, password: &str) {
        let mut user = (**self.default_user()).clone();
        (user.needs_none, user.passwords) = (password.is_empty(), Vec::new());
        if !password.is_empty() {
            user.add_password(Sha256::digest(password.as_bytes()).into());
        }
        self.put(user);
    }

    /// The user of a name, if the password is right. A missing user takes the same time.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let hash = Sha256::digest(password).into();
        let user = std::str::from_utf8(name).ok().and_then(|name| self.find(name));
        let accepts = user.unwrap_or(self.default_user()).accepts(&hash);
        user.filter(|_| accepts).cloned()
    }

    /// Reads lines that each define a user. `file` is the name of the file in errors. Without a
    /// definition, the default user may do all.
    ///
    /// # Errors
    /// All faults of the file, as text; nothing has changed.
    pub fn read(&mut self, text: &[u8], file: &str) -> Result<(), String> {
        let channels_by_default = self.channels_by_default;
        let mut read = Users { all: BTreeMap::new(), channels_by_default };
        let mut errors = String::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let number = number + 1;
            let words = line.split(|byte| byte.is_ascii_whitespace());
            let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
            let (name, rules) = match &words[..] {
                [] => continue,
                [word, name, rules @ ..] if *word == b"user" => (*name, rules),
                _ => {
                    errors += &format!(
                        "{file}:{number} should start with user keyword followed by the username. "
                    );
                    continue;
                }
            };
            let Some(name) = user_name(name) else {
                let name = String::from_utf8_lossy(name);
                errors +=
                    &format!("'{file}:{number}: username '{name}' contains invalid characters. ");
                continue;
            };
            if read.find(name).is_some() {
                errors += &format!("WARNING: Duplicate user '{name}' found on line {number}. ");
                continue;
            }
            let Ok(rules) = merged(rules) else {
                errors +=
                    &format!("{file}:{number}: Unmatched parenthesis in selector definition.");
                continue;
            };
            match read.with(User::new(name, channels_by_default), &rules) {
                Ok(user) => read.put(user),
                Err((rule, error @ RuleError::UnknownCommand)) => {
                    let rule = String::from_utf8_lossy(&rule);
                    errors += &format!(
                        "{file}:{number}: Error in applying operation '{rule}': {error}. "
                    );
                }
                Err((_, error)) => errors += &format!("{file}:{number}: {error}. "),
            }
        }
        if !errors.is_empty() {
            errors += "WARNING: ACL errors detected, no change to the previously active ACL rules \
                       was performed";
            return Err(errors);
        }
        // Clients of the default user stay so.
        let default = read.find(DEFAULT).map(|user| (**user).clone());
        let default = default.unwrap_or_else(User::all_powerful);
        read.put(User { id: self.default_user().id, ..default });
        *self = read;
        Ok(())
    }

    /// Defines users of the configuration file, each once: the default user anew.
    ///
    /// # Errors
    /// The fault, in a sentence.
    pub fn define(&mut self, lines: &[Vec<Vec<u8>>]) -> Result<(), String> {
        let mut defined = Vec::new();
        for words in lines {
            let name = &words[0];
            let wrong = || format!("the user name {:?} has blanks", String::from_utf8_lossy(name));
            let name = user_name(name).ok_or_else(wrong)?;
            if defined.contains(&name) {
                return Err(format!("Duplicate user '{name}' found: define it once"));
            }
            defined.push(name);
            let rules: Vec<&[u8]> = words[1..].iter().map(Vec::as_slice).collect();
            let rules = merged(&rules).map_err(|_| {
                format!("a parenthesis in the rules of user '{name}' is not closed")
            })?;
            let user = User::new(name, self.channels_by_default);
            let id = self.find(name).map_or(user.id, |known| known.id);
            let user = User { id, ..user };
            let user = self.with(user, &rules).map_err(|(_, error)| {
                format!("a rule of the user '{name}' is not possible: {error}")
            })?;
            self.put(user);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

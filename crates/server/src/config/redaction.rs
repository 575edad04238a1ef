//! Parts of commands to be hidden: the passwords in their arguments.

use crate::config::SECRETS;
use crate::resp::is;

/// Stands in the place of a password.
pub const REDACTED: &[u8] = b"(redacted)";

/// Whether the argument at a place is a password, or may be a password. Reads only a few arguments,
/// even of many.
pub fn is_secret(args: &[&[u8]], at: usize) -> bool {
    let is_at = |place: usize, word: &str| args.get(place).is_some_and(|arg| is(arg, word));
    match () {
        () if is_at(0, "auth") => at >= 1,
        // Both arguments behind each AUTH, for any meaning of the word there.
        () if is_at(0, "hello") => (1..=2).any(|n| at >= n + 2 && is_at(at - n, "auth")),
        () if is_at(0, "acl") && is_at(1, "setuser") => at >= 2,
        // A key behind KEYS may be taken for a password.
        () if is_at(0, "migrate") => {
            let follows = |n: usize, word: &str| at >= 6 + n && is_at(at - n, word);
            follows(1, "auth") || follows(1, "auth2") || follows(2, "auth2")
        }
        // The command asked about may have passwords.
        () if is_at(0, "acl") && is_at(1, "dryrun") => at >= 4 && is_secret(&args[3..], at - 3),
        () if is_at(0, "config") && is_at(1, "set") => {
            // Without a value for each name, names and values cannot be told apart.
            let is_odd = args.len() % 2 == 1;
            let names_secret = || SECRETS.iter().any(|name| is_at(at - 1, name));
            at >= 3 && (is_odd || at % 2 == 1 && names_secret())
        }
        () => false,
    }
}

/// The visible form of an argument.
pub fn shown<'a>(args: &[&'a [u8]], at: usize) -> &'a [u8] {
    if is_secret(args, at) { REDACTED } else { args[at] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let shown = (0..args.len()).map(|at| String::from_utf8_lossy(shown(&args, at)));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn passwords_are_not_shown() {
        let r = "(redacted)";
        assert_eq!(all("AUTH p"), format!("AUTH {r}"));
        assert_eq!(all("auth u p"), format!("auth {r} {r}"));
        assert_eq!(all("HELLO 3 auth u p SETNAME n"), format!("HELLO 3 auth {r} {r} SETNAME n"));
        assert_eq!(all("HELLO 3 AUTH u"), format!("HELLO 3 AUTH {r}"));
        assert!(!all("HELLO 3 SETNAME AUTH AUTH u p").contains('p'));
        assert_eq!(all("ACL SETUSER u on >p"), format!("ACL SETUSER {r} {r} {r}"));
        assert_eq!(all("ACL DRYRUN u AUTH p"), format!("ACL DRYRUN u AUTH {r}"));
        assert_eq!(all("ACL GETUSER u"), "ACL GETUSER u");
        assert_eq!(all("MIGRATE h 1 auth 0 1 AUTH p"), format!("MIGRATE h 1 auth 0 1 AUTH {r}"));
        assert_eq!(
            all("migrate h 1 k 0 1 COPY auth2 u p REPLACE"),
            format!("migrate h 1 k 0 1 COPY auth2 {r} {r} REPLACE")
        );
        assert_eq!(all("ACL DRYRUN u MIGRATE h 1 k 0 1 AUTH p").matches(r).count(), 1);
        assert_eq!(
            all("CONFIG SET timeout 1 RequirePass p hz 2"),
            format!("CONFIG SET timeout 1 RequirePass {r} hz 2")
        );
        assert_eq!(all("CONFIG SET requirepass a b"), format!("CONFIG SET requirepass {r} {r}"));
        assert_eq!(all("CONFIG SET dir requirepass"), "CONFIG SET dir requirepass");
        assert_eq!(all("SET auth p"), "SET auth p");
    }
}

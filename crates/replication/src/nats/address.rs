//! Where a replicated log is: `nats://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]..]/NAME`.

use std::fmt;
use std::str::FromStr;

/// The most characters of a name.
const MAX_NAME: usize = 64;

/// Servers, and the name of a replicated log on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The servers as URLs, `nats://` or `tls://`.
    pub servers: Vec<String>,
    /// The name: letters, digits, `-` and `_`.
    pub name: String,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    text: String,
    why: String,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadAddress { text, why } = self;
        write!(
            f,
            "{text:?} is no address of a replicated log, as nats://HOST:PORT,HOST/NAME: {why}"
        )
    }
}

impl std::error::Error for BadAddress {}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = |why: &str| BadAddress { text: text.to_owned(), why: why.to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("the scheme is missing"))?;
        if !["nats", "tls"].contains(&scheme) {
            return Err(bad("the scheme is neither nats nor tls"));
        }
        let (hosts, name) = rest.rsplit_once('/').ok_or_else(|| bad("the name is missing"))?;
        let is_named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_named) {
            return Err(bad("the name has 1 to 64 letters, digits, - and _"));
        }
        let user = hosts.rsplit_once('@');
        let (user, hosts) =
            user.map_or((String::new(), hosts), |(user, hosts)| (format!("{user}@"), hosts));
        if hosts.split(',').any(str::is_empty) {
            return Err(bad("a host is empty"));
        }
        let servers = hosts.split(',').map(|host| format!("{scheme}://{user}{host}")).collect();
        Ok(Address { servers, name: name.to_owned() })
    }
}

impl Address {
    /// The servers as a list, without users and passwords.
    pub fn servers_without_users(&self) -> String {
        let host = |url: &String| url.rsplit(['/', '@']).next().unwrap_or_default().to_owned();
        self.servers.iter().map(host).collect::<Vec<_>>().join(", ")
    }

    /// The name of the stream of a lane.
    pub fn stream(&self, lane: usize) -> String {
        format!("HY_{}_{lane}", self.name)
    }

    /// The name of the stream of the keys.
    pub fn keys_stream(&self) -> String {
        format!("HY_{}", self.name)
    }

    /// The subject of the questions to a node.
    pub fn ask_subject(&self, node: &str) -> String {
        format!("hyades.{}.ask.{node}", self.name)
    }

    /// The subject of the values of a key.
    pub fn key_subject(&self, key: &str) -> String {
        format!("hyades.{}.key.{key}", self.name)
    }

    /// The subject of broadcasts, which no stream stores.
    pub fn broadcast_subject(&self) -> String {
        format!("hyades.{}.broadcast", self.name)
    }

    /// The subject of the messages of a lane.
    pub fn subject(&self, lane: usize) -> String {
        format!("hyades.{}.{lane}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let address: Address = "nats://u:p@a:4222,b/orders-1".parse().unwrap();
        assert_eq!(address.servers, ["nats://u:p@a:4222", "nats://u:p@b"]);
        assert_eq!(
            (address.stream(2), address.subject(2)),
            ("HY_orders-1_2".into(), "hyades.orders-1.2".into())
        );
        let bad = ["a/b", "http://a/b", "nats://a", "nats://a/", "nats://a,,b/c", "nats://a/b.c"];
        for text in bad {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}

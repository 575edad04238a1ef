//! The settings of TLS.

use super::Settings;
use std::path::PathBuf;

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Each client needs a valid certificate.
    Required,
    /// A client may have no certificate; a shown certificate has to be valid.
    Optional,
    /// No certificate is requested.
    NotAsked,
}

/// The encryption of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The port for encrypted connections.
    pub port: u16,
    /// The server's certificate, and the certificates up to an authority's.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Certificates of the authorities that sign clients' certificates.
    pub authorities: Option<PathBuf>,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
    /// Whether version 1.2 is spoken.
    pub version_1_2: bool,
    /// Whether version 1.3 is spoken.
    pub version_1_3: bool,
    /// Whether the server chooses the cipher suite by its own order.
    pub prefers_own_suites: bool,
}

/// Checks `tls-protocols`: names of versions; none means both.
pub fn read_protocols(text: &str) -> Option<String> {
    let words = text.split_whitespace().map(|word| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Some("TLSv1.2"),
        "tlsv1.3" => Some("TLSv1.3"),
        _ => None,
    });
    Some(words.collect::<Option<Vec<_>>>()?.join(" "))
}

impl Settings {
    /// The encryption of connections, if there is a port.
    pub(crate) fn tls(&self) -> Option<TlsSettings> {
        let port = self.number("tls-port") as u16;
        if port == 0 {
            return None;
        }
        let file = |name: &str| PathBuf::from(self.text(name));
        let protocols = self.text("tls-protocols");
        Some(TlsSettings {
            port,
            certificate: file("tls-cert-file"),
            key: file("tls-key-file"),
            authorities: Some(file("tls-ca-cert-file")).filter(|path| !path.as_os_str().is_empty()),
            clients: match self.text("tls-auth-clients").as_str() {
                "no" => ClientCertificates::NotAsked,
                "optional" => ClientCertificates::Optional,
                _ => ClientCertificates::Required,
            },
            version_1_2: protocols.is_empty() || protocols.contains("TLSv1.2"),
            version_1_3: protocols.is_empty() || protocols.contains("TLSv1.3"),
            prefers_own_suites: self.is_yes("tls-prefer-server-ciphers"),
        })
    }
}

/// How a server is asked over an encrypted connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingTls {
    /// The certificates of the authorities that sign the server's certificate, in PEM format.
    pub authorities: Option<PathBuf>,
    /// A certificate to show, and the file of its key, in PEM format.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate of the server is accepted, whatever signed the certificate.
    pub takes_any: bool,
}

//! Answers: a head, and the bytes of a page.

use super::request::Refusal;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Types of pages.
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub const JSON: &str = "application/json";
pub const HTML: &str = "text/html; charset=utf-8";

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Bad Request",
    }
}

/// An answer. Its head allows no other site to use the answer, and pages are neither framed nor
/// embedded.
pub fn page(status: u16, kind: &str, policy: &str, body: &str, is_head: bool) -> Vec<u8> {
    let mut out = String::with_capacity(512 + body.len());
    let length = body.len();
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    // Writing to a text cannot fail.
    let _ = write!(
        out,
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; {policy}base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'\r\n\r\n",
        reason(status),
    );
    if !is_head {
        out.push_str(body);
    }
    out.into_bytes()
}

/// The answer to a refused request.
pub fn refusal(Refusal(status, text): Refusal, is_head: bool) -> Vec<u8> {
    page(status, TEXT, "", &format!("{text}\n"), is_head)
}

/// The rights of the script and the style in a page: no other script runs, and reads are limited to
/// this server.
pub fn policy_of(html: &str) -> String {
    let hash = |tag: &str| {
        let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
        let inside = html.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
        let (inside, _) = inside.expect("the page has one of each");
        base64(&Sha256::digest(inside.as_bytes()))
    };
    format!(
        "script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; ",
        hash("script"),
        hash("style")
    )
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let at = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            out.push(match digit <= three.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (text, encoded) in pairs {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xFB, 0xFF, 0xBF]), "+/+/");
    }

    #[test]
    fn an_answer_to_head_has_the_length_of_the_page_and_no_page() {
        let whole = String::from_utf8(page(200, TEXT, "", "abc", false)).unwrap();
        let head = String::from_utf8(page(200, TEXT, "", "abc", true)).unwrap();
        assert_eq!(whole, format!("{head}abc"));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"));
        assert!(head.contains("\r\nContent-Length: 3\r\n"));
        assert!(!head.contains("Allow") && !head.to_lowercase().contains("access-control"));
        let other = String::from_utf8(refusal(Refusal(405, "no"), true)).unwrap();
        assert!(other.contains("\r\nAllow: GET, HEAD\r\n"));
    }
}

//! The user that commands run as: as configured, and as this machine knows it.

use punctual_worker::process::protocol::Account;
use std::fmt;
use std::fs;
use std::str::FromStr;

const USERS: &str = "/etc/passwd";
/// Characters of a user's name, as `useradd` accepts them.
const NAME_CHARS_MAX: usize = 32;

/// A user as written: a name, or a uid that may be followed by a gid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandUser {
    Name(String),
    Ids { uid: u32, gid: Option<u32> },
}

impl FromStr for CommandUser {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let (uid, gid) = match text.split_once(':') {
                Some((uid, gid)) => (uid, Some(gid.parse().map_err(|_| ())?)),
                None => (text, None),
            };
            return Ok(CommandUser::Ids { uid: uid.parse().map_err(|_| ())?, gid });
        }
        let is_part = |part: char| part.is_ascii_alphanumeric() || "._-$".contains(part);
        let is_name = (1..=NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(is_part);
        let begins_well = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        if is_name && begins_well { Ok(CommandUser::Name(text.to_owned())) } else { Err(()) }
    }
}

impl fmt::Display for CommandUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandUser::Name(name) => out.write_str(name),
            CommandUser::Ids { uid, gid: Some(gid) } => write!(out, "{uid}:{gid}"),
            CommandUser::Ids { uid, gid: None } => write!(out, "{uid}"),
        }
    }
}

impl CommandUser {
    /// The account on this machine, or why there is none that commands could have.
    pub fn account(&self) -> Result<Account, String> {
        let users = fs::read_to_string(USERS).unwrap_or_default();
        let account = self.found_in(&users)?;
        if account.uid == 0 {
            return Err(
                "commands do not run as root by choice of a user: name another user, or set allow_root_commands and \
                 no user"
                    .to_owned(),
            );
        }
        Ok(account)
    }

    fn found_in(&self, users: &str) -> Result<Account, String> {
        let known = |is_it: &dyn Fn(&Account) -> bool| users.lines().filter_map(entry).find(is_it);
        match self {
            CommandUser::Name(name) => known(&|account| account.name.as_ref() == Some(name)).ok_or_else(|| {
                format!(
                    "there is no user {name} in {USERS}: create it (useradd --system {name}), or write its numbers, such \
                     as 1001:1001"
                )
            }),
            CommandUser::Ids { uid, gid } => match (known(&|account| account.uid == *uid), gid) {
                (Some(account), gid) => Ok(Account { gid: gid.unwrap_or(account.gid), ..account }),
                (None, Some(gid)) => Ok(Account { uid: *uid, gid: *gid, name: None, home: None }),
                (None, None) => Err(format!(
                    "there is no user {uid} in {USERS}: write the number of its group as well, such as {uid}:{uid}"
                )),
            },
        }
    }
}

/// An account in a line such as `nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin`.
fn entry(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    let home = fields.nth(1).filter(|home| home.starts_with('/')).map(Into::into);
    Some(Account { uid, gid, name: Some(name), home })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str =
        "root:x:0:0:root:/root:/bin/sh\nreports:x:1001:1002::/srv/reports:/bin/false\nbroken\n";

    fn found(text: &str) -> Result<Account, String> {
        text.parse::<CommandUser>().unwrap().found_in(KNOWN)
    }

    #[test]
    fn users_are_names_or_numbers() {
        for good in ["reports", "_apt", "svc-1", "1001", "1001:1002"] {
            assert_eq!(good.parse::<CommandUser>().unwrap().to_string(), good);
        }
        for bad in ["", "-x", "a b", "a:b", "1001:", ":1", "1001:x", "-1", "99999999999", "ä"] {
            assert_eq!(bad.parse::<CommandUser>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn an_account_has_the_group_and_home_of_its_user() {
        let reports = found("reports").unwrap();
        assert_eq!((reports.uid, reports.gid), (1001, 1002));
        assert_eq!(reports.home.as_deref(), Some("/srv/reports".as_ref()));
        assert_eq!(found("1001"), Ok(reports.clone()));
        assert_eq!(found("1001:7"), Ok(Account { gid: 7, ..reports }));
        assert_eq!(found("5:6"), Ok(Account { uid: 5, gid: 6, name: None, home: None }));
        assert!(found("nobody").unwrap_err().contains("useradd --system nobody"));
        assert!(found("5").unwrap_err().contains("such as 5:5"));
    }

    #[test]
    fn root_is_not_a_user_for_commands() {
        for root in ["root", "0:5"] {
            let problem = root.parse::<CommandUser>().unwrap().account().unwrap_err();
            assert!(problem.contains("allow_root_commands"), "{problem}");
        }
    }
}

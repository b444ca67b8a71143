//! Whom files and directories belong to. What another user can change must not decide where a token goes, or
//! which token is valid.

use rustix::process::geteuid;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

const ROOT: u32 = 0;
/// The mode bits that let the group and others write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// The owner and the mode of a file or directory, and who uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ownership {
    owner: u32,
    group: u32,
    mode: u32,
    user: u32,
}

impl Ownership {
    /// As this process sees it.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Ownership {
            owner: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode() & 0o7777,
            user: geteuid().as_raw(),
        }
    }

    /// Why a server cannot keep its data in this directory.
    pub(crate) fn wrong_for_server(&self) -> Option<String> {
        if self.owner != self.user { Some(self.other_owner()) } else { self.writers() }
    }

    /// Why a command must not use the server of this directory. Root may use that of another user, if it was asked
    /// to: `is_named`.
    pub(crate) fn wrong_for_command(&self, is_named: bool) -> Option<String> {
        let is_roots_choice = self.user == ROOT && is_named;
        if self.is_foreign() && !is_roots_choice { Some(self.other_owner()) } else { self.writers() }
    }

    /// Why a configuration file that was found without being named must not be used. Where every user has a group of their own,
    /// with the same number, files are often writable for that group.
    pub(crate) fn wrong_for_configuration(&self) -> Option<String> {
        let has_own_group = self.group == self.owner && self.mode & OTHERS_WRITE == 0;
        match self.is_foreign() {
            true => Some(self.other_owner()),
            false if has_own_group => None,
            false => self.writers(),
        }
    }

    /// Root can change everything anyway.
    fn is_foreign(&self) -> bool {
        ![self.user, ROOT].contains(&self.owner)
    }

    fn other_owner(&self) -> String {
        let Ownership { owner, mode, user, .. } = self;
        format!("it belongs to user {owner} (mode {mode:04o}), and this command runs as user {user}")
    }

    fn writers(&self) -> Option<String> {
        let Ownership { owner, mode, .. } = self;
        (mode & (GROUP_WRITES | OTHERS_WRITE) != 0)
            .then(|| format!("users other than its owner, user {owner}, can write to it (mode {mode:04o})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen_by(user: u32, owner: u32, mode: u32) -> Ownership {
        Ownership { owner, group: owner, mode, user }
    }

    #[test]
    fn a_server_keeps_its_data_in_a_directory_of_its_own() {
        for (user, owner, mode, is_good) in [
            (0, 0, 0o700, true),
            (1000, 1000, 0o755, true),
            (0, 1000, 0o700, false),
            (1000, 0, 0o755, false),
            (1000, 1000, 0o770, false),
            (0, 0, 0o777, false),
            (0, 0, 0o1777, false),
        ] {
            let wrong = seen_by(user, owner, mode).wrong_for_server();
            assert_eq!(wrong.is_none(), is_good, "{user} {owner} {mode:o}: {wrong:?}");
        }
    }

    #[test]
    fn a_command_trusts_its_user_and_root_and_root_trusts_what_it_names() {
        for (user, owner, mode, is_named, is_good) in [
            (1000, 1000, 0o700, false, true),
            (1000, 0, 0o755, false, true),
            (1000, 1001, 0o755, true, false),
            (1000, 1000, 0o775, true, false),
            (0, 1000, 0o700, true, true),
            (0, 1000, 0o700, false, false),
            (0, 1000, 0o777, true, false),
        ] {
            let wrong = seen_by(user, owner, mode).wrong_for_command(is_named);
            assert_eq!(wrong.is_none(), is_good, "{user} {owner} {mode:o} {is_named}: {wrong:?}");
        }
    }

    #[test]
    fn a_configuration_file_is_of_the_user_or_of_root() {
        for (user, owner, group, mode, is_good) in [
            (1000, 1000, 1000, 0o644, true),
            (1000, 1000, 1000, 0o664, true),
            (1000, 1000, 100, 0o664, false),
            (1000, 1000, 1000, 0o666, false),
            (1000, 0, 0, 0o644, true),
            (1000, 1001, 1001, 0o644, false),
            (0, 1000, 1000, 0o600, false),
        ] {
            let wrong = Ownership { group, ..seen_by(user, owner, mode) }.wrong_for_configuration();
            assert_eq!(wrong.is_none(), is_good, "{user} {owner}:{group} {mode:o}: {wrong:?}");
        }
    }

    #[test]
    fn owner_and_mode_are_named() {
        assert_eq!(
            seen_by(0, 65534, 0o777).wrong_for_server().unwrap(),
            "it belongs to user 65534 (mode 0777), and this command runs as user 0"
        );
        assert_eq!(
            seen_by(7, 7, 0o770).wrong_for_server().unwrap(),
            "users other than its owner, user 7, can write to it (mode 0770)"
        );
    }
}

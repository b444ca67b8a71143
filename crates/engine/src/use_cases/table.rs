//! Which permission each use case needs. This is the only place that says so; `docs/reference/permissions.md`
//! and the OpenAPI document are made from it.

use punctual_core::access::Permission;

macro_rules! use_cases {
    ($($(#[$doc:meta])* $case:ident = $name:literal: $permission:ident $($server_wide:ident)?,)*) => {
        /// Everything that a caller can ask of a node.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum UseCase {
            $($(#[$doc])* $case,)*
        }

        impl UseCase {
            pub const ALL: &'static [UseCase] = &[$(UseCase::$case),*];

            /// Its name in the audit log and in the documentation.
            pub fn name(self) -> &'static str {
                match self { $(UseCase::$case => $name),* }
            }

            pub fn permission(self) -> Permission {
                match self { $(UseCase::$case => Permission::$permission),* }
            }

            /// Whether it covers everything on the server, so that a caller with a limited scope is refused.
            pub fn is_server_wide(self) -> bool {
                match self { $(UseCase::$case => !<[&str]>::is_empty(&[$(stringify!($server_wide)),*])),* }
            }
        }
    };
}

use_cases! {
    ReadJobs = "job.read": JobsRead,
    ReadExecutions = "execution.read": JobsRead,
    ReadDeadLetters = "dead_letter.read": JobsRead,
    ReadEvents = "event.read": JobsRead,
    ExplainJob = "job.explain": JobsRead,
    PreviewSchedule = "schedule.preview": JobsRead,
    ReadLogs = "log.read": PayloadRead,
    Submit = "job.submit": JobsWrite,
    UpdateJob = "job.update": JobsWrite,
    PauseJob = "job.pause": JobsWrite,
    ResumeJob = "job.resume": JobsWrite,
    CancelJob = "job.cancel": JobsWrite,
    RetryJob = "job.retry": JobsWrite,
    TriggerJob = "job.trigger": JobsWrite,
    DeleteJob = "job.delete": JobsWrite,
    CancelExecution = "execution.cancel": JobsWrite,
    Redrive = "dead_letter.redrive": JobsWrite,
    Discard = "dead_letter.discard": JobsWrite,
    ReadQueues = "queue.read": ServerRead,
    SetQueue = "queue.set": QueuesWrite,
    PauseQueue = "queue.pause": QueuesWrite,
    ResumeQueue = "queue.resume": QueuesWrite,
    ReadWorkers = "worker.read": ServerRead,
    OrderWorker = "worker.order": WorkersWrite server_wide,
    ReadStats = "stats.read": ServerRead,
    ReadServer = "server.read": ServerRead server_wide,
    DriveClock = "clock.drive": ClockWrite server_wide,
    Work = "worker.run": Work,
    ReadTokens = "token.read": AccessRead server_wide,
    CreateToken = "token.create": AccessWrite server_wide,
    RevokeToken = "token.revoke": AccessWrite server_wide,
    UpdateToken = "token.update": AccessWrite server_wide,
    RotateToken = "token.rotate": AccessWrite server_wide,
    ReadUsers = "user.read": AccessRead server_wide,
    AddUser = "user.add": AccessWrite server_wide,
    UpdateUser = "user.update": AccessWrite server_wide,
    RemoveUser = "user.remove": AccessWrite server_wide,
    ReadAudit = "audit.read": AuditRead server_wide,
    ReadSecrets = "secret.read": SecretsRead,
    SetSecret = "secret.set": SecretsWrite,
    RemoveSecret = "secret.remove": SecretsWrite,
    RotateSecrets = "secret.rotate": SecretsWrite server_wide,
}

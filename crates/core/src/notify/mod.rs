//! Notifications: the channels they go to, the rules that select events, and what is stored about deliveries and
//! alerts. Pure rules and stored forms; sending and reading history is elsewhere.

mod ack;
mod channel;
mod delivery;
mod event;
mod rule;

pub use ack::{AckClaim, AckKey};
pub use channel::{Channel, ChannelSecret, ChannelType, MailTls};
pub use delivery::{
    Acknowledgement, Alert, Delivery, DeliveryKey, DeliveryState, PlannedEscalation, delivery_id,
    delivery_time, retry_after,
};
pub use event::{EventKind, NotificationEvent, OutgoingMessage, default_text, default_title};
pub use rule::{
    Escalation, EventSubject, JobSelector, Mute, MutedThen, NotificationRule, NotifySettings, OWNER_CHANNEL,
    RuleEvent, SelectedJob, Silence,
};

#[cfg(test)]
mod tests;

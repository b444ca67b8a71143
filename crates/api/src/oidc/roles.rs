//! What the subject of a JWT may do, if no stored user has its email address.

use super::claims::Claims;
use crate::error::ApiError;
use punctual_core::access::{Grant, GrantTerms, Role, Scope};
use punctual_core::job::DEFAULT_OWNER;
use punctual_core::names::owner_name_problem;
use serde_json::Value;

/// Roles and owners by claims.
#[derive(Debug, Clone)]
pub struct RoleRules {
    /// The claim with a value, or a list of values, that `roles` maps.
    pub role_claim: String,
    /// Values and their roles. The first one that a subject has decides.
    pub roles: Vec<(String, Role)>,
    /// The claim with the owner of the jobs that a subject submits. Without it, a submitter owns its own.
    pub owner_claim: Option<String>,
}

impl RoleRules {
    pub fn grant(&self, claims: &Claims) -> Result<Grant, ApiError> {
        let values = self.values(claims);
        let role = self.roles.iter().find(|(value, _)| values.contains(&value.as_str()));
        let Some((_, role)) = role else {
            return Err(ApiError::Unauthorized(
                "no user of this server has the email address of the JWT, and none of its roles is mapped to one",
            ));
        };
        let owner = self.owner(*role, claims)?;
        let limit = owner.clone().filter(|_| !role.reaches_all_owners());
        let scope = Scope { owner: limit, ..Scope::default() };
        Ok(GrantTerms { owner, scope, permissions: vec![] }.grant(*role))
    }

    fn values<'a>(&self, claims: &'a Claims) -> Vec<&'a str> {
        match claims.find(&self.role_claim) {
            // The one standard claim with several values in one text.
            Some(Value::String(scopes)) if self.role_claim == "scope" => scopes.split(' ').collect(),
            Some(Value::String(value)) => vec![value],
            Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        }
    }

    fn owner(&self, role: Role, claims: &Claims) -> Result<Option<String>, ApiError> {
        let owner = match &self.owner_claim {
            Some(claim) => claims.text(claim).map(str::to_owned),
            None if role.reaches_all_owners() => return Ok(None),
            None => Some(claims.verified_email().unwrap_or_else(|| claims.subject.clone())),
        };
        match owner.filter(|owner| owner_name_problem(owner).is_none()) {
            // The jobs of the server's own tokens belong to it.
            Some(owner) if owner == DEFAULT_OWNER => Err(ApiError::Unauthorized(
                "the JWT names the owner default, which is reserved: set oidc.owner_claim to a claim with another name",
            )),
            Some(owner) => Ok(Some(owner)),
            None => Err(ApiError::Unauthorized("the JWT names no valid owner for the jobs that it submits")),
        }
    }
}

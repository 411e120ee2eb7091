//! Requests that count a prompt's tokens. They sample nothing and are not calls, but they use the server. The limit
//! `max_calls_in_flight` applies to these requests and the calls in flight together.

use super::{CallRefusal, Trial};

/// A counting request in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counting<'a>(&'a Trial);

impl Trial {
    /// Admits a request that counts tokens.
    ///
    /// # Errors
    /// The trial is sealed, or as many requests are in flight as its limits allow.
    pub(crate) fn begin_count(&self) -> Result<Counting<'_>, CallRefusal> {
        let mut state = self.lock();
        if state.sealed_at.is_some() {
            return Err(CallRefusal::Sealed);
        }
        let in_flight = (state.in_flight.len() + state.counts) as u64;
        match self.opened.limits.max_calls_in_flight.filter(|&max| in_flight >= max) {
            Some(max) => Err(CallRefusal::TooManyInFlight(max)),
            None => {
                state.counts += 1;
                Ok(Counting(self))
            }
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.lock().counts -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Limits;
    use crate::feed::tests::trial as opened;

    #[test]
    fn counts_at_once_have_the_limit_of_calls_at_once() {
        let mut opened = opened("a", (None, 0, 0));
        opened.limits = Limits { max_calls: Some(0), max_calls_in_flight: Some(2), ..Limits::default() };
        let trial = Trial::new(opened);
        let first = trial.begin_count().unwrap();
        let _second = trial.begin_count().unwrap();
        assert_eq!(trial.begin_count().unwrap_err(), CallRefusal::TooManyInFlight(2));
        drop(first);
        let _third = trial.begin_count().unwrap();
        trial.seal();
        assert_eq!(trial.begin_count().unwrap_err(), CallRefusal::Sealed);
    }
}

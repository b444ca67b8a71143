from celery import Celery
from celery.schedules import crontab, solar
from datetime import timedelta

app = Celery('shop', broker='redis://localhost')
app.conf.timezone = 'Europe/Berlin'

app.conf.beat_schedule = {
    # every half minute
    'ping': {
        'task': 'shop.tasks.ping',
        'schedule': 30.0,
        'args': ('db',),
    },
    'nightly-invoices': {
        'task': 'shop.tasks.invoices',
        'schedule': crontab(minute=30, hour=2, day_of_week='mon-fri'),
        'kwargs': {'limit': 500, 'dry': False},
        'options': {'queue': 'billing', 'expires': 3600, 'priority': 3},
    },
    'first-monday': {
        'task': 'shop.tasks.stock',
        'schedule': crontab(0, 12, day_of_month='1-7', day_of_week='monday'),
    },
    'thirteenth': {
        'task': 'shop.tasks.beware',
        'schedule': crontab(minute=0, hour=12, day_of_month=13, day_of_week='fri'),
    },
    'cleanup': {'task': 'shop.tasks.cleanup', 'schedule': timedelta(hours=1, minutes=30)},
    'lights': {'task': 'shop.tasks.lights', 'schedule': solar('sunset', -37.8, 144.9)},
}

# Sidekiq: jobs, with perform_in and with retries, by a process with four threads.
# packages: ruby-sidekiq
# kind: queue
# slots: 4
# loses: 4
require 'sidekiq'

WORK = ENV.fetch('WORK')
options = { url: "redis://127.0.0.1:#{ENV.fetch('PORT')}/0" }
Sidekiq.configure_client { |config| config.redis = options }
Sidekiq.configure_server do |config|
  config.redis = options
  config.options[:average_scheduled_poll_interval] = 1
end

def append(file, line)
  File.open(File.join(WORK, file), 'a') { |to| to.syswrite("#{line}\n") }
end

class Job
  include Sidekiq::Worker
  sidekiq_options retry: 3
  sidekiq_retry_in { 1 }

  def perform(name)
    sleep 0.02
    mark = File.join(WORK, "failed-#{name}")
    if name.start_with?('r') && !File.exist?(mark)
      File.write(mark, '')
      append('journal', "failed #{name} #{Time.now.to_f}")
      raise 'fails once'
    end
    append('journal', "done #{name} #{Time.now.to_f}")
  end
end

if ARGV[0] == 'work'
  exec('sidekiq', '-r', File.expand_path(__FILE__), '-c', '4')
elsif ARGV[0] == 'main'
  added = number = 0
  while added < 120
    number += 1
    kind = { 3 => 'd', 5 => 'r' }.fetch(number % 6, 'n')
    delay = kind == 'd' ? 3 : 0
    name = "#{kind}#{number}"
    start = Time.now.to_f
    begin
      delay.zero? ? Job.perform_async(name) : Job.perform_in(delay, name)
      append('acked', "#{name} #{start + delay} #{start} #{Time.now.to_f}")
      added += 1
      sleep 0.02
    rescue StandardError => e
      warn e.inspect
      sleep 0.3
    end
  end
  puts 'what was fetched is not acknowledged'
end
